// TwoPhase: one collective call in two phases: ranks and aggregators exchange data, aggregators and
// the Store move it, a window (plan/coverage.h) at a time.
//
// Ranks on an aggregator's node copy straight between their memory and its buffer
// (mpiio/window_area.h); others send or receive theirs (mpiio/exchange.h). Long pieces of its own
// memory an aggregator gives to the Store as they are (plan/own_pieces.h). While an aggregator
// moves a window to the Store the others fill the next one; of a read, they empty one while it
// reads the next.
//
// Who waits for whom: every rank goes through the steps in order. In step i it visits window i of
// each aggregator that it has to do with; an aggregator opens window i + 1 before that, and ends
// with moving window i. Where all ranks meet in each step (in one MPI_Alltoallw, after the visits,
// or to keep the order of targets) each goes through the windows of all aggregators: so all make
// the same number of steps. So in step i nobody waits for more than what others do before the end
// of their step i - 1, or in their step i before they move data; there is no circle.
//
// Between nodes data moves only while both sides call MPI, so there an aggregator's background
// (mpiio/background.h) writes window i, while the aggregator itself goes on to step i + 1, with the
// receives of window i + 1 posted. It waits for the write before it opens window i + 2, in the same
// half; if the write has not ended by then, after the visits of step i + 1 instead of before them.
//
// An error of the Store does not stop the steps: the aggregator goes on without it, so that nobody
// waits, and all ranks learn of it when they agree at the end of the call.
#pragma once

#include <deque>
#include <future>

#include "mpiio/collective.h"
#include "mpiio/exchange.h"
#include "plan/own_pieces.h"

namespace forebay::mpiio {

class TwoPhase {
 public:
  TwoPhase(Collective& kept, Transfer& transfer, const plan::Realms& realms);
  ~TwoPhase();
  void run();

 private:
  struct Window {  // of this aggregator
    std::vector<Extent> runs;
    std::vector<uint64_t> places;  // of them in the buffer, for far ranks' data
    uint64_t bytes = 0;
    plan::OwnPieces own;  // that are not in the buffer
  };
  bool aggregates() const { return kept_.index_ >= 0; }
  WindowArea& own() { return kept_.areas_[static_cast<size_t>(kept_.index_)]; }
  uint32_t first_number() { return own().opened() - static_cast<uint32_t>(opened_.size()); }
  bool reading() const { return transfer_.direction() == Direction::read; }

  void open_next();
  void open_next_if_any();
  void make_file_long();
  void plan_windows();
  uint64_t window_bytes() const;
  template <class Body>
  void within_memory(Body&& body);
  uint64_t fill(Window& window, std::byte* buffer);
  void store(Window window, const std::byte* buffer);
  bool storing() const;
  void end_store();
  void move_first();
  void fail(const Error& error);
  bool copied(size_t rank) const;
  Scattered in_window(size_t rank, const Window& window, std::byte* buffer) const;
  Scattered in_memory(std::vector<Extent> runs);
  bool told_by_realm(const Window& window) const;
  void tell_far_ranks(const Window& window, bool last);
  bool concerned(size_t rank, size_t aggregator) const;
  template <class Fn>
  void for_each_far_rank(Fn&& fn) const;
  void receive_all(const Window& window, std::byte* buffer);
  void send_all(const Window& window, std::byte* buffer, uint32_t step);
  void visit_all();
  bool may_own_pieces() const;
  template <class Fn>
  void for_each_own(std::span<const Extent> runs, Fn&& fn);
  void visit_own(const WindowArea::Seen& seen);
  void visit_near(size_t aggregator);
  void visit_far(size_t aggregator);
  std::vector<Extent> learn_runs(size_t aggregator);
  void step();
  Result<uint64_t> call(Op op, const Window& window, const std::byte* buffer);

  Collective& kept_;
  File& file_;
  Transfer& transfer_;
  const plan::Realms& realms_;
  const plan::ViewPart part_;  // of this rank
  plan::TiledCursor memory_;
  uint64_t moved_ = 0;
  uint32_t step_ = 0;
  uint32_t windows_opened_ = 0;  // in this call, of an aggregator

  std::vector<char> open_;  // by aggregator: are there windows yet?
  size_t open_count_ = 0;

  std::unique_ptr<plan::Windows> windows_;  // of an aggregator
  std::deque<Window> opened_;               // and not moved yet
  bool failed_ = false;                     // the Store or memory, of an aggregator
  Window stored_;                           // in the background
  std::future<Result<uint64_t>> end_;       // of that; not valid: nothing is
  const bool late_;                         // are windows sent in their own steps?
  const uint64_t least_own_;                // bytes of a piece that is not copied
  const bool behind_;                       // are they stored in the background?
  Exchange exchange_;
  uint32_t near_ranks_ = 0;
  std::vector<size_t> far_ranks_;  // with which this aggregator has to do
};

}  // namespace forebay::mpiio
