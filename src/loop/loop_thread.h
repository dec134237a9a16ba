// LoopThread: a thread that runs a Loop from construction until stop(). It does not own the loop,
// which must outlive it.
//
// Threads: stop() from any thread but its own, more than once if one likes; it returns when the
// thread has ended. Tasks that are still queued then stay in the loop.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "loop/loop.h"

namespace forebay {

class LoopThread {
 public:
  // The name is what top and gdb show; the kernel keeps 15 bytes of it.
  explicit LoopThread(Loop& loop, std::string name = "loop");
  ~LoopThread() { stop(); }
  LoopThread(const LoopThread&) = delete;

  void stop();

 private:
  void run(const std::string& name);

  Loop& loop_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace forebay
