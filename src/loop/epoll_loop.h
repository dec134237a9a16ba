// EpollLoop: the real Loop. Tasks, timers and descriptors of one thread, on one epoll instance.
//
// Descriptors stay registered, level-triggered: a message costs its reader one epoll_wait and one
// receive, nothing else. (Asio, which this replaced, rearms a descriptor with an epoll_ctl for
// every wait and allocates an operation for it; docs/performance.md has what that cost.)
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

namespace forebay {

class EpollLoop final : public Loop {
 public:
  EpollLoop();  // throws std::system_error if the process is out of descriptors
  ~EpollLoop() override;
  EpollLoop(const EpollLoop&) = delete;

  void post(Task task) override;
  TimerId after(Duration d, Task task) override;
  void cancel(TimerId id) override;
  Time now() const override;
  bool on_loop() const override;
  bool run_one(Duration most) override;
  void wake() override;

  // A descriptor and who hears of it. It is called for as long as it is ready (level-triggered), so
  // whoever does not want that any more says so by watch() or unwatch().
  class Ready {
   public:
    virtual void ready(uint32_t events) = 0;  // EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP
    // The descriptor is not ours any more (guard()), and not watched.
    virtual void lost() {}

   protected:
    ~Ready() = default;
  };
  // `known`: it is watched already, with other events. Not called any more after unwatch(), not
  // even for events that have been fetched.
  void watch(int fd, uint32_t events, Ready& ready, bool known);
  void unwatch(int fd, Ready& ready);

  // For a loop in somebody else's program, which may close descriptors that it does not know
  // (marked.h). The loop's own are then made anew, and whoever watches one that is gone is told so,
  // within about a second. Before anything is watched.
  void guard();
  void adopt(int fd) const;  // marks it, if the loop is guarded
  bool owns(int fd) const;   // what was adopted: is it still that?

  // One whose news comes through memory, not through a descriptor: it is looked at in every turn
  // while it is lively. Before the loop sleeps, and when nothing has come for many turns, it is
  // asked to rest: to have whoever brings news ring a descriptor that it watches.
  class Poller {
   public:
    virtual bool poll() = 0;      // does what there is to do; false if there was nothing
    virtual bool rest() = 0;      // false: there is something to do, look again
    virtual void turn_ended() {}  // if it asked for it, or as good as ended
    // A way to sleep that is cheaper than on a descriptor, if it has one: until there is news, at
    // most so long, and as long as rest() holds. False: nothing has come, or it has no such way.
    virtual bool sleep(Duration) { return false; }
    virtual void interrupt() {}  // makes a sleep() return; any thread, during it

   protected:
    virtual ~Poller() = default;

   private:
    friend class EpollLoop;
    bool lively_ = false;  // it is on the list of those that are looked at
    bool due_ = false;     // it is told when the turn ends
  };
  // For a loop that serves others on this machine: it lets them have the core after each turn that
  // did something for them, so that they take their answers and bring more before it looks again.
  void share_core();
  unsigned crowd() const;  // of pollers that are looked at in every turn
  // One of its pollers knows that so many others wait for the same server.
  void set_crowd(unsigned others);
  // Tells it when this turn ends, before the loop sleeps or gives way; at once if the turn has
  // already lasted long. On the loop only.
  void tell_at_end(Poller& poller);
  // Something is about to come: the next wait is begun awake.
  void expect();
  void poll(Poller& poller);    // look at it from now on
  void forget(Poller& poller);  // not called any more

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay
