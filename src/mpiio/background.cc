#include "mpiio/background.h"

#include <iterator>
#include <system_error>
#include <utility>

#include "mpiio/guest_thread.h"

namespace forebay::mpiio {
Background::~Background() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::begin(Callback<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (has_thread()) {
      queue_.push_back(std::move(work));
      changed_.notify_one();
      return;
    }
  }
  work();
}

void Background::retry(const void* key, Callback<bool()> attempt) {
  std::lock_guard lock(mutex_);
  if (!has_thread()) return;
  attempts_.insert_or_assign(key, std::move(attempt));
  changed_.notify_one();
}

bool Background::has_thread() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;  // a limit of processes or threads
  }
  return true;
}

void Background::run() {
  behave_as_a_guest();
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto called = [&] { return ending_ || !queue_.empty(); };
    if (attempts_.empty())
      changed_.wait(lock, [&] { return called() || !attempts_.empty(); });
    else
      changed_.wait_until(lock, next_attempt_, called);
    if (!queue_.empty())
      do_first(lock);
    else if (ending_)
      return;
    if (!attempts_.empty() && std::chrono::steady_clock::now() >= next_attempt_) try_all(lock);
  }
}

void Background::do_first(std::unique_lock<std::mutex>& lock) {
  auto work = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  work();
  work = {};
  lock.lock();
}

void Background::try_all(std::unique_lock<std::mutex>& lock) {
  auto attempts = std::exchange(attempts_, {});
  lock.unlock();
  for (auto it = attempts.begin(); it != attempts.end();)
    it = it->second() ? attempts.erase(it) : std::next(it);
  next_attempt_ = std::chrono::steady_clock::now() + kPause;
  lock.lock();
  attempts_.merge(attempts);  // what was given meanwhile stays
}

}  // namespace forebay::mpiio
