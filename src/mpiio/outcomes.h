// Outcomes: how the ranks of a file learn what became of each other's parts of a non-blocking
// collective call, as blocking ones agree by a reduction.
//
// It goes through the state that they share (shared_state.h), not through MPI: whoever has done its
// part says so at once, from the background, whether its program is in MPI or not. A reduction
// would have to wait for every program to come to Wait or Test, and one that sits in MPI_Recv until
// another rank's Wait returns would never come.
//
// The calls of a file are numbered, on every rank alike. Call n has two values: how many ranks have
// arrived, in n and in those before it that had the same values, and the worst error. There are
// kCalls pairs. A rank arrives in a call when all have arrived in the one kAhead before, and learns
// that one's outcome first; if it is further ahead, it has to wait (arrivals.h). So whoever arrives
// in call n, and may change its values, knows that all have learned what they said of n - kCalls.
//
// Any thread. The state must outlive it.
#pragma once

#include <optional>

#include "mpiio/shared_state.h"

namespace forebay::mpiio {

class Outcomes {
 public:
  static constexpr uint64_t kCalls = 28;
  static constexpr uint64_t kAhead = kCalls / 2;

  Outcomes(SharedState& state, uint64_t ranks) : state_(state), ranks_(ranks) {}

  // This rank's part of call `number` has ended with a code, 0 if it is done. Nothing: others have
  // yet to arrive in the call kAhead before. Else the largest code of that call (0 if there is
  // none), to be kept by who may ask for it later: worst() may say 0 from now on. Never waits.
  Result<std::optional<uint32_t>> try_arrive(uint64_t number, uint32_t code);
  // The largest code of all ranks, as soon as all have arrived; or 0, see above.
  Result<std::optional<uint32_t>> worst(uint64_t number);

 private:
  Result<bool> all_arrived(uint64_t calls, Slot at);
  Result<void> keep(uint64_t number, uint32_t code);

  SharedState& state_;
  const uint64_t ranks_;
};

}  // namespace forebay::mpiio
