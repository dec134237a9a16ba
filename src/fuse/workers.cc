#include "fuse/workers.h"

#include <signal.h>

#include <thread>

#include "fuse/door.h"
#include "fuse/worker.h"

namespace forebay::fuse {

Workers::Workers(fuse_session* session, Store& store, std::function<void()> ended)
    : session_(session), store_(store), ended_(std::move(ended)) {}

Workers::~Workers() {
  std::unique_lock lock(mutex_);
  fewer_.wait(lock, [this] { return threads_ == 0; });
}

void Workers::start() {
  const std::lock_guard lock(mutex_);
  spawn_locked();
}

// Signals are for the thread that started us.
void Workers::spawn_locked() {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  ++threads_;
  std::thread([this] { work(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Workers::work() {
  serve();
  const std::lock_guard lock(mutex_);
  if (--threads_ > 0) return;
  ended_();
  fewer_.notify_all();  // under the lock: whoever waits may destroy us when it is free
}

void Workers::serve() {
  const Worker worker(store_);
  fuse_buf request = {};
  request.mem = worker.request().data();
  while (!fuse_session_exited(session_)) {
    {
      const std::lock_guard lock(mutex_);
      if (idle_ >= kMostIdle) return;
      ++idle_;
    }
    const int n = fuse_session_receive_buf(session_, &request);
    {
      const std::lock_guard lock(mutex_);
      --idle_;
      if (n > 0 && idle_ == 0 && threads_ < kMost) spawn_locked();
    }
    if (n == -EINTR || n == -EAGAIN) continue;
    if (n <= 0) return;
    fuse_session_process_buf(session_, &request);
  }
}

}  // namespace forebay::fuse
