// TwoPhase: a collective call of ranks on several nodes, in two phases: ranks and aggregators
// exchange data, aggregators and the Store move it, a window (plan/coverage.h) at a time.
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
// Between nodes data moves only while both sides call MPI, so an aggregator's background
// (mpiio/background.h) writes window i, while the aggregator itself goes on to step i + 1, with the
// receives of window i + 1 posted. It waits for the write before it opens window i + 2, in the same
// half; if the write has not ended by then, after the visits of step i + 1 instead of before them.
#pragma once

#include <deque>
#include <future>

#include "mpiio/exchange.h"
#include "mpiio/windowed_call.h"

namespace forebay::mpiio {

class TwoPhase : private WindowedCall {
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
  uint32_t first_number() { return own_area().planned() - static_cast<uint32_t>(opened_.size()); }

  void open_next();
  void open_next_if_any();
  void free_half_of(uint32_t number);
  uint64_t fill(Window& window, std::byte* buffer);
  void store(Window window, uint32_t number);
  bool storing() const;
  void end_store();
  void move_first();
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
  void visit_near(size_t aggregator);
  void visit_far(size_t aggregator);
  std::vector<Extent> learn_runs(size_t aggregator);
  void step();

  plan::TiledCursor memory_;  // of this rank
  uint32_t step_ = 0;
  uint32_t windows_opened_ = 0;  // in this call, of an aggregator
  std::deque<Window> opened_;    // and not moved yet
  Window stored_;                // in the background, and its number
  uint32_t stored_number_ = 0;
  std::future<Result<uint64_t>> end_;  // of that; not valid: nothing is
  const bool late_;                    // are windows sent in their own steps?
  Exchange exchange_;
  uint32_t near_ranks_ = 0;
  std::vector<size_t> far_ranks_;  // with which this aggregator has to do
};

}  // namespace forebay::mpiio
