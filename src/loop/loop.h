// Loop: an event loop, seen from those who run on it: tasks, timers and a clock. One thread runs a
// Loop at a time, and everything bound to it (connections, sessions) is touched only there, so it
// needs no locks. The real one is on epoll (epoll_loop.h); the simulated one (sim_loop.h) runs the
// same servers and clients in one thread, deterministic from a seed.
#pragma once

#include <cstdint>

#include "core/callback.h"
#include "core/clock.h"

namespace forebay {

class Loop {
 public:
  virtual ~Loop() = default;

  // Runs the task later, on the loop; never inside post(). Any thread. Tasks posted by one thread
  // run in that order.
  virtual void post(Task task) = 0;

  // Runs the task after at least d, unless cancelled first. On the loop only. Ids are never reused.
  using TimerId = uint64_t;
  virtual TimerId after(Duration d, Task task) = 0;
  virtual void cancel(TimerId id) = 0;  // no-op for one that ran or was cancelled

  virtual Time now() const = 0;  // any thread

  // Is the calling thread the one that runs this loop now? (Always true for the simulated one.)
  virtual bool on_loop() const = 0;

  // Runs what is ready; if nothing is, waits for the next event, at most `most`. Returns false if
  // nothing ran. One thread at a time. This is how a client's own caller drives its loop.
  virtual bool run_one(Duration most) = 0;
  // Makes a run_one() that waits return. Any thread.
  virtual void wake() = 0;
};

}  // namespace forebay
