// SimLoop: a Loop with a virtual clock, for running servers, clients and a network (transport's
// sim_transport.h) in one thread, deterministic from a seed.
//
// What is promised is what the real loop promises, and the rest is left to chance: posted tasks run
// in the order posted; timers run in the order of their due times, those due at once in random
// order; when both a task and a due timer are ready, either may run. Time moves only when nothing
// is ready.
//
// One thread only, everything.
#pragma once

#include <deque>
#include <random>

#include "core/callback.h"
#include "loop/loop.h"
#include "loop/timer_queue.h"

namespace forebay {

class SimLoop final : public Loop {
 public:
  explicit SimLoop(uint64_t seed) : random_(seed) {}
  ~SimLoop() override;

  void post(Task task) override { posted_.push_back(std::move(task)); }
  TimerId after(Duration d, Task task) override;
  void cancel(TimerId id) override { timers_.cancel(id); }
  Time now() const override { return now_; }
  bool on_loop() const override { return true; }

  // Runs one task; if none is ready, moves the clock to the next timer and runs that. If it is
  // further than `most` away, moves the clock by `most` and returns false; if there is none at all,
  // the clock stands still, because nothing could ever happen.
  bool run_one(Duration most) override;
  void wake() override {}

  // Runs until pred() holds; false if the virtual time `limit` passed, or nothing is left to run.
  template <class Pred>
  bool run_until(Pred&& pred, Duration limit) {
    const Time end = now_ + limit;
    while (!pred()) {
      if (now_ >= end || !run_one(end - now_)) return pred();
    }
    return true;
  }
  // Runs for so much virtual time, or until nothing is left to run.
  void run_for(Duration d) {
    run_until([] { return false; }, d);
  }

  bool idle() { return posted_.empty() && timers_.size() == 0; }
  // The loop's own source of chance, for whatever runs on it.
  uint64_t random() { return random_(); }

 private:
  Task take_ready();

  std::mt19937_64 random_;
  Time now_;
  std::deque<Task> posted_;
  TimerQueue timers_;
};

}  // namespace forebay
