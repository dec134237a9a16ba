// Background: the one thread of a process that does what non-blocking calls began. It makes no MPI
// call, so it works at every thread level that the program asked for, and it does things in the
// order in which they were begun. What can only be tried, because it waits for another process, it
// tries again and again, so that nothing else waits for that.
//
// It starts with the first thing to do. Some launchers bind a process to one core; the thread frees
// itself of that, because it would only wait there for the computation that it should overlap with.
//
// Any thread may call begin() and retry().
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
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
  // Every kPause, between the things that were begun, until it returns true or the Background ends;
  // not at all if there can be no thread. Instead of what was given for that key before.
  void retry(const void* key, Callback<bool()> attempt);

  static constexpr auto kPause = std::chrono::milliseconds(1);

 private:
  void run();
  bool has_thread();
  void do_first(std::unique_lock<std::mutex>& lock);
  void try_all(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Callback<void()>> queue_;
  std::map<const void*, Callback<bool()>> attempts_;
  std::chrono::steady_clock::time_point next_attempt_{};
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace forebay::mpiio
