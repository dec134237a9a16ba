#include "loop/sim_loop.h"

#include <algorithm>

namespace forebay {

SimLoop::~SimLoop() {
  // What a dropped task owns may still post or cancel.
  while (!idle()) {
    timers_.clear();
    const auto dropped = std::exchange(posted_, {});
  }
}

Loop::TimerId SimLoop::after(Duration d, Task task) {
  constexpr Duration kLongest = std::chrono::hours(24 * 365);  // sums of times must not overflow
  return timers_.add(now_ + std::clamp(d, Duration::zero(), kLongest), random_(), std::move(task));
}

Task SimLoop::take_ready() {
  const auto due = timers_.next_due();
  const bool timer_ready = due && *due <= now_;
  if (timer_ready && (posted_.empty() || random_() % 2 == 0)) return timers_.pop_due(now_);
  if (posted_.empty()) return {};
  Task task = std::move(posted_.front());
  posted_.pop_front();
  return task;
}

bool SimLoop::run_one(Duration most) {
  Task task = take_ready();
  if (!task) {
    const auto due = timers_.next_due();
    if (!due) return false;
    if (*due - now_ > most) {
      now_ = now_ + most;
      return false;
    }
    now_ = *due;
    task = timers_.pop_due(now_);
  }
  task();
  return true;
}

}  // namespace forebay
