// Collective: two-phase I/O (paper 5, chapter 4) of one open file, and what it keeps between calls:
// who aggregates, the aggregators' buffers, which ranks' views they know.
//
// A call: every rank tells all others what it wants in a few numbers (Summary); all choose the same
// (plan/collective.h). If it is to be done together, ranks send their views to the aggregators,
// where these do not have them yet, and a TwoPhase does the rest.
//
// All ranks of the file call run() in the same order. On the program's thread; calls MPI.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpiio/transfer.h"
#include "mpiio/window_area.h"
#include "plan/collective.h"
#include "plan/told_views.h"
#include "plan/windows.h"

namespace forebay::mpiio {

class Collective {
 public:
  explicit Collective(File& file) : file_(file) {}
  ~Collective();
  Collective(const Collective&) = delete;

  // Moves the bytes of every rank's transfer. One that has a fault takes part without data.
  void run(Transfer& transfer);

  // For FOREBAY_EXPLAIN.
  std::string explanation() const;

 private:
  friend class WindowedCall;
  friend class Crew;
  friend class TwoPhase;

  static constexpr size_t kQuantiles = 8;
  // What hints say. Rank 0's count: ranks that were given different ones must not choose apart.
  struct Settings {
    uint64_t wish[2] = {0, 0};  // by Direction
    uint64_t limit = 0, per_node = 1;
    uint64_t buffer = 0;
    uint64_t alignment = 0;  // 0: they do not
    uint64_t realms = 0;     // a Kind
    uint64_t unit = 0, factor = 0, first_target = 0;
    uint64_t alltoallw = 0;                  // a Wish: the exchange between nodes
    uint64_t order = 0;                      // an Order
    uint64_t keep = 0;                       // a Wish: realms that persist
    uint64_t form = 0, size = 0, cache = 0;  // of those
    uint64_t file_size = 0;
    uint64_t local = 0;  // the file system
    // Of rank 0: the length of its realms' list and 1, if it is another one than all know; 0: not.
    uint64_t new_list = 0;
    uint64_t buffer_half() const { return std::max<uint64_t>(buffer / 2, 4096); }
    bool same_buffers(const Settings& o) const {
      return limit == o.limit && per_node == o.per_node && buffer == o.buffer;
    }
  };
  struct Summary {
    Settings settings;
    uint64_t low = 0, end = 0;  // of its bytes in the file
    uint64_t from = 0, length = 0;
    uint64_t unsent = 0;           // the aggregators do not know its view
    uint64_t slot = 0;             // of that
    uint64_t new_type = 0;         // in memory: not the one that realms were sized for
    uint64_t describable = 1;      // monotone
    uint64_t piece = 0;            // mean length in the file
    uint64_t exchanged_piece = 0;  // and there or in memory, the smaller one
    std::array<uint64_t, kQuantiles> quantiles{};
    Extent region() const { return length > 0 ? Extent{Offset(low), Length(end - low)} : Extent{}; }
  };
  struct Described {
    std::vector<int64_t> numbers;
    std::vector<size_t> ends{};  // by aggregator, of what is for it; none: all get all
    bool whole_view = false;
    bool failed = false;  // there is no memory for it
  };
  // What ranks tell each other before the first call in two phases.
  struct AreaNews {
    SharedMemory::Place place{};    // of an aggregator's buffer
    uint32_t window = 0, made = 0;  // its next one; is there a buffer?
    Layout reported{};              // by rank 0's Store
  };
  // The views of a call that aggregators did not know.
  struct Received {
    struct Size {
      uint64_t numbers = 0, whole_view = 0, cut = 0, failed = 0;
      uint64_t let_go = 0;  // views in slots
    };
    std::vector<Size> sizes;            // by rank
    std::vector<int> numbers_of, from;  // by rank: how many are for this one, and where they begin
    std::vector<int64_t> numbers{};
    bool many = false;  // so many that memory may not suffice
  };

  Settings settings() const;
  Summary summarize(const Transfer& transfer);
  Described describe(const plan::ViewPart& part, const plan::Realms& realms);
  plan::Method choose(Direction direction) const;
  plan::Realms choose_realms();
  bool types_changed() const;
  Fault keep_realms(const Transfer& transfer);
  plan::ChosenStriping striping() const;
  plan::Striping choose_order() const;
  bool by_alltoallw() const;
  bool make_areas(const Settings& settings);
  AreaNews make_own_area(const Settings& settings);
  void give_areas_back();
  void meet(const std::vector<AreaNews>& news);
  void learn_who_is_near();
  void ask_for_layout();
  void learn_given();
  Fault exchange_views(const Transfer& transfer, const plan::Realms& realms);
  Fault send_views(const Transfer& transfer, const plan::Realms& realms, Received& received);
  void tell_numbers(const Described& mine, std::vector<int>& send, std::vector<int>& from,
                    Received& received) const;
  Fault tell_sizes(const Described& mine, Received& received, bool& all_there);
  Fault agree_if_many(bool fits, const Received& received) const;
  void take_parts(const Received& received);
  void together(Transfer& transfer);
  std::string_view why_so_many() const;
  std::string_view why_such_buffers() const;
  Extent region() const;

  File& file_;
  std::vector<Summary> summaries_;       // of the call, by rank
  std::optional<plan::ToldViews> told_;  // of this rank

  bool ready_ = false;
  Settings made_for_;
  std::vector<int> aggregators_;       // ranks
  int index_ = -1;                     // of this rank among the aggregators
  std::vector<WindowArea> areas_;      // by aggregator; of those that are near
  std::vector<char> near_;             // by aggregator: is it near to this rank?
  std::vector<char> rank_near_;        // by rank: is it near to this aggregator?
  bool all_near_ = false;              // every rank to every aggregator
  std::vector<uint32_t> next_window_;  // by aggregator
  // By rank, of an aggregator: by slot.
  std::vector<std::array<plan::TiledMap, plan::ToldViews::kSlots>> views_;
  std::vector<plan::ViewPart> parts_;  // by rank, of an aggregator; of the call

  uint64_t realm_size_ = 0;  // of persistent realms; 0: there are none
  uint32_t sized_for_ = 0;   // the view that it was chosen for, and this rank's type in memory
  std::optional<plan::TypeMap::Outline> sized_for_type_;
  uint64_t sizes_ = 0;                      // that were chosen so far
  std::string list_;                        // of realms, as rank 0's user says
  std::optional<plan::GivenRealms> given_;  // what it means
  plan::Striping order_;  // of the call: by what realms are moved; not known: by offset
  Layout reported_;       // of the file, by rank 0's Store
  bool asked_ = false;    // for it, of rank 0

  uint64_t calls_ = 0, together_ = 0;
  uint64_t numbers_ = 0;  // in which this rank has told its views, to all aggregators together
  std::string_view why_;  // of the last call
  // Of the last one in two phases.
  std::string_view together_why_, realms_why_;
  std::string given_unused_;
};

}  // namespace forebay::mpiio
