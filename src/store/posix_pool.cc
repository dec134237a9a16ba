#include "store/posix_pool.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>

namespace forebay::posix {

Pool::~Pool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Pool::Taken Pool::submit(Task& task, Whose whose, bool anyway) {
  {
    std::lock_guard lock(mutex_);
    const auto found = lines_.find(whose);
    const size_t in_line = found == lines_.end() ? 0 : found->second.size();
    if (in_line >= most_in_line_ && !anyway) return Taken::line_is_full;
    if (idle_ <= queued_ && threads_.size() < most_threads_ && !start_thread() && threads_.empty())
      return Taken::no_thread;
    if (in_line == 0) turns_.push_back(whose);
    lines_[whose].push_back(std::move(task));
    ++queued_;
  }
  ready_.notify_one();
  return Taken::yes;
}

// False: the system has none for us now (a limit of threads or of memory). The next task tries
// again. A program's signals are not for its threads, but for those that are their own doing
// (posix_sigbus.h).
bool Pool::start_thread() {
  sigset_t blocked, before;
  ::sigfillset(&blocked);
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&blocked, own);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  bool started = true;
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

// Of the line whose turn it is, which then goes to the end.
Task Pool::next() {
  const Whose whose = turns_.front();
  turns_.pop_front();
  const auto line = lines_.find(whose);
  Task task = std::move(line->second.front());
  line->second.pop_front();
  --queued_;
  if (line->second.empty())
    lines_.erase(line);
  else
    turns_.push_back(whose);
  return task;
}

void Pool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    ready_.wait(lock, [this] { return stop_ || queued_ > 0; });
    --idle_;
    if (queued_ == 0) return;
    Task task = next();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace forebay::posix
