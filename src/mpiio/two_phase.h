// TwoPhase: one collective call in two phases: ranks and aggregators exchange data, aggregators and
// the Store move it, a window (plan/coverage.h) at a time.
//
// Ranks on an aggregator's node copy straight between their memory and its buffer
// (mpiio/window_area.h); others send or receive packed messages. While an aggregator moves a window
// to the Store the others fill the next one; of a read, they empty one while it reads the next.
//
// Who waits for whom: every rank goes through the steps in order. In step i it visits window i of
// each aggregator; an aggregator opens window i + 1 before that, and ends with moving window i. So
// in step i nobody waits for more than what others do before the end of their step i - 1, or in
// their step i before they move data; there is no circle.
//
// An error of the Store does not stop the steps: the aggregator goes on without it, so that nobody
// waits, and all ranks learn of it when they agree at the end of the call.
#pragma once

#include <deque>

#include "mpiio/collective.h"

namespace forebay::mpiio {

class TwoPhase {
 public:
  TwoPhase(Collective& kept, Transfer& transfer, const plan::Realms& realms);
  void run();

 private:
  struct Window {  // of this aggregator
    std::vector<Extent> runs;
    uint64_t bytes = 0;
  };
  struct Header {               // what a far rank is told of a window
    uint64_t from = 0, to = 0;  // all of the realm between them
    uint64_t runs = 0;          // not 0: only so many runs, which follow
    uint64_t last = 0;
  };
  struct Sent {         // until MPI has sent it
    uint32_t step = 0;  // of who receives it
    Header header;
    std::vector<Extent> runs;
    std::vector<std::byte> data;
    std::array<MPI_Request, 3> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };

  bool aggregates() const { return kept_.index_ >= 0; }
  WindowArea& own() { return kept_.areas_[static_cast<size_t>(kept_.index_)]; }
  bool reading() const { return transfer_.direction() == Direction::read; }

  void open_next();
  void plan_windows();
  uint64_t fill(const Window& window, std::byte* buffer);
  void store(const Window& window, const std::byte* buffer);
  void fail(const Error& error);
  struct InBuffer {
    uint64_t named = 0;  // bytes
    MPI_Datatype type = MPI_DATATYPE_NULL;
  };
  InBuffer in_buffer(size_t rank, const Window& window, uint64_t end) const;
  void tell_far_ranks(const Window& window, uint64_t end, bool last, std::byte* buffer);
  void receive_from_far(const Window& window, std::byte* buffer);
  void visit_near(size_t aggregator);
  void visit_far(size_t aggregator);
  std::vector<Extent> learn_runs(size_t aggregator);
  void step();
  void end_far_sends(uint32_t before);
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
  bool failed_ = false;                     // the Store, of an aggregator
  std::deque<Sent> sent_;
  uint32_t near_ranks_ = 0;
};

}  // namespace forebay::mpiio
