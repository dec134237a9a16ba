#include "mpiio/background.h"

#include <system_error>

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
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = {};
    lock.lock();
  }
}

}  // namespace forebay::mpiio
