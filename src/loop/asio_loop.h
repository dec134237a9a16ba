// AsioLoop: the real Loop, over Asio's reactor (epoll). Tasks and timers are our own: a locked
// queue and a heap. Asio is asked only to wait for descriptors, so a timer or a task costs no
// system call while the loop is busy.
//
// Threads: post(), wake(), now() and on_loop() from any thread. Everything else from the thread
// that runs the loop, or from one that holds a lock which keeps others from running it: threads may
// take turns, one at a time (a client's callers do).
//
// Timers are late by up to a millisecond, epoll's unit. Whatever is bound to the loop (connections,
// listeners) must be destroyed before it; tasks and timers that have not run are then dropped
// unrun.
#pragma once

#include <memory>

#include "loop/loop.h"

namespace asio {
class io_context;
}

namespace forebay {

class AsioLoop final : public Loop {
 public:
  AsioLoop();
  ~AsioLoop() override;
  AsioLoop(const AsioLoop&) = delete;

  void post(Task task) override;
  TimerId after(Duration d, Task task) override;
  void cancel(TimerId id) override;
  Time now() const override;
  bool on_loop() const override;
  bool run_one(Duration most) override;
  void wake() override;

 private:
  friend asio::io_context& io_context_of(Loop& loop);  // asio_loop_internal.h
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay
