// The threads of one posix store, bounded in number. A back end that never answers keeps its
// requests, and at worst all threads of this pool, but nobody else's: further requests wait, each
// caller's in a line of its own, and are refused when their own line is full. Lines are served in
// turn, so that nobody waits for more than one task of each other caller, however many those have.
// Threads are started when there is work and none is idle; if no more can be started, those that
// there are do it all.
//
// Any thread may submit. The destructor runs what is queued and waits for all of it; with a back
// end that never answers it never returns, which is why a server exits without it then.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/callback.h"

namespace forebay::posix {

class Pool {
 public:
  Pool(unsigned threads, size_t line) : most_threads_(threads), most_in_line_(line) {}
  ~Pool();

  // Whose task it is: a number that stays that caller's as long as the task is here.
  using Whose = const void*;
  enum class Taken { yes, line_is_full, no_thread };
  // Runs the task on a thread of the pool, or leaves it untouched. `anyway`: whatever the length of
  // the line, for what cannot be refused any more.
  Taken submit(Task& task, Whose whose, bool anyway = false);

 private:
  bool start_thread();
  Task next();
  void work();

  const size_t most_threads_;
  const size_t most_in_line_;
  std::mutex mutex_;
  std::condition_variable ready_;
  // Lines that are not empty, and whose turn it is next.
  std::unordered_map<Whose, std::deque<Task>> lines_;
  std::deque<Whose> turns_;
  size_t queued_ = 0;
  size_t idle_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace forebay::posix
