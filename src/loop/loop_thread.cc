#include "loop/loop_thread.h"

#include <pthread.h>

#include "core/assert.h"

namespace forebay {

LoopThread::LoopThread(Loop& loop, std::string name) : loop_(loop) {
  thread_ = std::thread([this, name = std::move(name)] { run(name); });
}

void LoopThread::run(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  while (!stopping_.load(std::memory_order_acquire)) loop_.run_one(Duration::max());
}

void LoopThread::stop() {
  if (!thread_.joinable()) return;
  FOREBAY_ASSERT(thread_.get_id() != std::this_thread::get_id());
  stopping_.store(true, std::memory_order_release);
  loop_.wake();
  thread_.join();
}

}  // namespace forebay
