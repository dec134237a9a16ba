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

bool Workers::wait_for_turn() {
  std::unique_lock lock(mutex_);
  if (over_) return false;
  if (readers_ < kReaders) return ++readers_, true;
  if (resting_ >= kResting) return false;
  ++resting_;
  turn_.wait(lock, [this] { return over_ || turns_ > 0; });
  --resting_;
  if (over_) return false;
  --turns_;
  return true;
}

void Workers::took_request() {
  const std::lock_guard lock(mutex_);
  if (--readers_ > 0) return;
  if (resting_ > turns_) {
    ++turns_;
    ++readers_;
    turn_.notify_one();
  } else if (threads_ < kMost) {
    spawn_locked();
  }
}

void Workers::over() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  turn_.notify_all();
}

void Workers::serve() {
  const Worker worker(store_);
  fuse_buf request = {};
  request.mem = worker.request().data();
  while (wait_for_turn()) {
    int n = 0;
    do n = fuse_session_receive_buf(session_, &request);
    while (n == -EINTR || n == -EAGAIN);
    if (n <= 0 || fuse_session_exited(session_)) return over();
    took_request();
    fuse_session_process_buf(session_, &request);
  }
}

}  // namespace forebay::fuse
