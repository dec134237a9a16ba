#include "loop/asio_loop.h"

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "core/assert.h"
#include "loop/asio_loop_internal.h"
#include "loop/timer_queue.h"

namespace forebay {

namespace {

// Turns that may run only tasks and timers before descriptors are looked at again: tasks that keep
// posting tasks must not starve the network, and a look costs a system call.
constexpr unsigned kTurnsWithoutLook = 8;

// Longer delays and waits are cut to this, so that sums of times do not overflow.
constexpr Duration kLongest = std::chrono::hours(24 * 365);

}  // namespace

struct AsioLoop::Impl {
  // One thread at a time runs it, so handlers need no strand; posting from others stays safe.
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  SteadyClock clock;
  TimerQueue timers;
  uint64_t timers_made = 0;
  std::vector<Task> batch;  // kept for its capacity
  unsigned turns_without_look = 0;
  std::atomic<std::thread::id> runner{};

  std::mutex mutex;
  std::vector<Task> posted;
  bool waiting = false;   // the runner is, or is about to be, inside the reactor
  bool wake_due = false;  // the next wait must not block

  bool run_timers();
  bool run_posted();
  bool run_tasks() {
    const bool timers_ran = run_timers();
    return run_posted() || timers_ran;
  }
  bool look(Duration most);
  Duration until_next_timer(Duration most);
  bool begin_wait();
  void end_wait();
};

bool AsioLoop::Impl::run_timers() {
  if (timers.size() == 0) return false;
  // Only what was due at the start: a timer that rearms itself with no delay must not hold the
  // loop.
  const Time now = clock.now();
  bool ran = false;
  while (Task task = timers.pop_due(now)) {
    task();
    ran = true;
  }
  return ran;
}

bool AsioLoop::Impl::run_posted() {
  {
    std::lock_guard lock(mutex);
    if (posted.empty()) return false;
    batch.swap(posted);
  }
  for (Task& task : batch) {
    task();
    task = nullptr;  // what it owns dies in order, before the next one runs
  }
  batch.clear();
  return true;
}

// False: something was posted meanwhile, or somebody wants the runner back: look, but do not block.
bool AsioLoop::Impl::begin_wait() {
  std::lock_guard lock(mutex);
  if (!posted.empty() || wake_due) return false;
  waiting = true;
  return true;
}

void AsioLoop::Impl::end_wait() {
  std::lock_guard lock(mutex);
  waiting = false;
  wake_due = false;
}

Duration AsioLoop::Impl::until_next_timer(Duration most) {
  if (const auto due = timers.next_due()) {
    return std::clamp(*due - clock.now(), Duration::zero(), std::max(most, Duration::zero()));
  }
  return most;
}

// Lets the reactor run what descriptors have ready, waiting for it if there is nothing.
bool AsioLoop::Impl::look(Duration most) {
  turns_without_look = 0;
  const Duration wait = until_next_timer(most);
  const bool may_block = wait > Duration::zero() && begin_wait();
  size_t ran = 0;
  if (!may_block) {
    ran = io.poll_one();
  } else if (wait == Duration::max()) {
    ran = io.run_one();
  } else {
    ran = io.run_one_for(std::min(wait, kLongest));
  }
  end_wait();
  return ran != 0;
}

AsioLoop::AsioLoop() : impl_(std::make_unique<Impl>()) {}

AsioLoop::~AsioLoop() {
  // What a dropped task owns may post, or destroy things bound to this loop: while it still works.
  Impl& m = *impl_;
  for (bool more = true; more;) {
    m.timers.clear();
    std::vector<Task> dropped;
    std::lock_guard lock(m.mutex);
    dropped.swap(m.posted);
    more = !dropped.empty();
  }
}

void AsioLoop::post(Task task) {
  Impl& m = *impl_;
  bool interrupt = false;
  {
    std::lock_guard lock(m.mutex);
    m.posted.push_back(std::move(task));
    interrupt = m.waiting && !m.wake_due;
    if (interrupt) m.wake_due = true;
  }
  if (interrupt) asio::post(m.io, [] {});
}

void AsioLoop::wake() {
  Impl& m = *impl_;
  bool interrupt = false;
  {
    std::lock_guard lock(m.mutex);
    interrupt = m.waiting && !m.wake_due;
    m.wake_due = true;
  }
  if (interrupt) asio::post(m.io, [] {});
}

Loop::TimerId AsioLoop::after(Duration d, Task task) {
  const Time due = impl_->clock.now() + std::clamp(d, Duration::zero(), kLongest);
  return impl_->timers.add(due, impl_->timers_made++, std::move(task));
}

void AsioLoop::cancel(TimerId id) {
  impl_->timers.cancel(id);
}

Time AsioLoop::now() const {
  return impl_->clock.now();
}

bool AsioLoop::on_loop() const {
  return impl_->runner.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

bool AsioLoop::run_one(Duration most) {
  Impl& m = *impl_;
  FOREBAY_ASSERT(!on_loop(), "a task must not run its own loop");
  m.runner.store(std::this_thread::get_id(), std::memory_order_relaxed);
  bool ran = m.run_tasks();
  if (!ran || ++m.turns_without_look >= kTurnsWithoutLook) {
    ran = m.look(ran ? Duration::zero() : most) || ran;
  }
  m.runner.store(std::thread::id(), std::memory_order_relaxed);
  return ran;
}

asio::io_context& io_context_of(Loop& loop) {
  auto* real = dynamic_cast<AsioLoop*>(&loop);
  FOREBAY_ASSERT(real, "sockets need a loop of the real kind");
  return real->impl_->io;
}

}  // namespace forebay
