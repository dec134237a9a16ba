// The threads of one posix store, bounded in number and queue. A back end that never answers keeps
// its requests, and at worst all threads of this pool, but nobody else's: further requests wait in
// the queue, then are refused. Threads are started when there is work and none is idle.
//
// Any thread may submit. The destructor runs what is queued and waits for all of it; with a back
// end that never answers it never returns, which is why a server exits without it then.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "core/callback.h"

namespace forebay::posix {

class Pool {
 public:
  Pool(unsigned threads, size_t queue) : most_threads_(threads), most_queued_(queue) {}
  ~Pool();

  // Runs the task on a thread of the pool; false, with the task untouched, if the queue is full.
  bool try_submit(Task& task);
  // The same whatever the queue's length, for what cannot be refused any more.
  void submit(Task task);

 private:
  void enqueue(Task&& task);
  void work();

  const size_t most_threads_;
  const size_t most_queued_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Task> queue_;
  size_t idle_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace forebay::posix
