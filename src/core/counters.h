// Counters that a running server shows: relaxed atomics, cheap enough for every request.
// A CounterSet is a plain registry that its owner passes around; there is no global one.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace forebay {

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  void subtract(uint64_t n = 1) { value_.fetch_sub(n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Any thread. A Counter lives as long as its set; the same name gives the same Counter.
class CounterSet {
 public:
  Counter& get(const std::string& name);
  std::vector<std::pair<std::string, uint64_t>> snapshot() const;  // sorted by name

 private:
  mutable std::mutex mutex_;
  std::deque<std::pair<std::string, Counter>> counters_;
};

}  // namespace forebay
