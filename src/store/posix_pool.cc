#include "store/posix_pool.h"

namespace forebay::posix {

Pool::~Pool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Pool::try_submit(Task& task) {
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= most_queued_) return false;
    enqueue(std::move(task));
  }
  ready_.notify_one();
  return true;
}

void Pool::submit(Task task) {
  {
    std::lock_guard lock(mutex_);
    enqueue(std::move(task));
  }
  ready_.notify_one();
}

void Pool::enqueue(Task&& task) {
  queue_.push_back(std::move(task));
  if (idle_ < queue_.size() && threads_.size() < most_threads_)
    threads_.emplace_back([this] { work(); });
}

void Pool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    ready_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace forebay::posix
