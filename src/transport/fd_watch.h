// FdWatch: a descriptor on a loop's epoll. Says when it is readable or writable, once per request,
// and calls its user later (defer), all on the loop; after the watch is destroyed or released
// nothing is called any more, so the user may move to another loop without a trace on this one.
//
// The descriptor stays registered for reading from the first wait on, level-triggered: a user that
// waits again as soon as it has read causes no further system call, and no readiness is missed, so
// whoever has read less than it asked for need not read once more. Readiness that nobody waits for
// takes the descriptor out of the epoll until somebody does.
//
// On the loop only, and not at the same time as it runs elsewhere.
#pragma once

#include <memory>

#include "core/fd.h"
#include "loop/loop.h"

namespace forebay {

class EpollLoop;

// The loop as what it must be for real descriptors (asserted).
EpollLoop& epoll_loop(Loop& loop);

class FdUser {
 public:
  virtual void readable() {}
  virtual void writable() {}
  virtual void deferred() {}

 protected:
  ~FdUser() = default;
};

class FdWatch {
 public:
  // The loop must be an EpollLoop. The user must outlive the watch, or destroy it in time.
  FdWatch(Loop& loop, Fd fd, FdUser& user);
  ~FdWatch();
  FdWatch(const FdWatch&) = delete;

  int fd() const;         // -1: it was shut, or is not ours any more (EpollLoop::guard())
  void await_readable();  // one call of readable(), unless shut first
  void await_writable();
  void defer();  // one call of deferred(), also after shut()

  void shut();   // closes the descriptor
  Fd release();  // gives it back, open

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace forebay
