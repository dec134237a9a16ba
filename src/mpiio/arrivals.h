// Arrivals: what a rank has yet to say of its parts of a file's non-blocking collectives
// (outcomes.h). Who is far ahead of the slowest rank may have to say it later, and nobody may wait
// for that: not the background, whose next work the slow rank may depend on, nor a program that
// begins a call. So it stays here, and is tried again: by the background now and then, by the
// program's thread when it asks for a request, and by close.
//
// Those of the lowest number go first, and the others not before it. That costs no call its end: a
// call that all ranks have begun is behind others that they have begun too.
//
// Any thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "core/callback.h"
#include "mpiio/outcomes.h"

namespace forebay::mpiio {

class Arrivals {
 public:
  using Told = Callback<void(Result<void>)>;  // all know, or cannot be told

  // `code`: as Outcomes::try_arrive() has it.
  void add(uint64_t number, uint32_t code, Told told);
  // Says all that can be said now; true: none is left. `outcomes` is asked if there is any.
  bool try_all(const std::function<Result<Outcomes>()>& outcomes);
  // The largest code of a call in which all have arrived. Outcomes may have lost it, but not before
  // it was learned here.
  Result<std::optional<uint32_t>> worst(Outcomes& outcomes, uint64_t number);

 private:
  struct One {
    uint32_t code;
    Told told;
  };
  std::mutex mutex_;
  std::map<uint64_t, One> pending_;      // by number
  std::map<uint64_t, uint32_t> failed_;  // what was learned of earlier calls
};

}  // namespace forebay::mpiio
