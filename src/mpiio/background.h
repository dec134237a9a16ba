// Background: the one thread of a process that does what non-blocking calls began. It makes no MPI
// call, so it works at every thread level that the program asked for, and it does things in the
// order in which they were begun.
//
// It starts with the first thing to do. Some launchers bind a process to one core; the thread frees
// itself of that, because it would only wait there for the computation that it should overlap with.
//
// Any thread may call begin().
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "core/callback.h"

namespace forebay::mpiio {

class Background {
 public:
  Background() = default;
  ~Background();  // after what was begun is done
  Background(const Background&) = delete;

  void begin(Callback<void()> work);  // at once, on this thread, if there can be no other

 private:
  void run();
  bool has_thread();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Callback<void()>> queue_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace forebay::mpiio
