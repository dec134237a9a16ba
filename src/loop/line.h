// Line: whom a loop looks at first, and whom it leaves out of a turn, when those whose news comes
// through memory bring more than a turn should hold.
//
// Served all in turn, many clients on few cores find everything cold each time: their own memory,
// their session, their file. (Processes that call the kernel themselves do not: they work on for a
// slice.) So a turn ends when it has as many as keep the loop busy for a visit, and the next one
// begins with the same ones, until they have had their quantum; then with those who were left out.
// With 256 clients on two cores that is twice to five times as much (docs/performance.md).
//
// Work is conserved: whoever is first and has nothing is passed over at no cost. Nobody starves: a
// turn that begins after the quantum moves the line on by one at least, and quanta are the shorter
// the more there are. And who uses little of the loop's time, less than a part of its share, does
// not wait for that: in some turns it is looked at all the same.
//
// Pure: looking and the clock are the caller's. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/clock.h"

namespace forebay {

class Line {
 public:
  static constexpr size_t kFew = 16;  // who are always looked at: their small writes may touch
  static constexpr Duration kVisit = std::chrono::microseconds(100);
  static constexpr Duration kQuantum = std::chrono::milliseconds(10);
  static constexpr Duration kRound = std::chrono::seconds(2);  // the most for all quanta together
  static constexpr Duration kSweep = std::chrono::milliseconds(1);   // between such turns
  static constexpr Duration kLittle = std::chrono::milliseconds(1);  // that may be used at once
  static constexpr int64_t kPart = 4;                                // a fourth of a share

  // One who is in line: until when it has used more than its part. (A leaky bucket, as a time.)
  struct Place {
    Time used_until{};
  };

  // A turn of so many places begins; with which.
  size_t begin(size_t count, Time now) {
    count_ = count;
    if (head_ >= count_) head_ = 0;
    full_ = false;
    unsettled_ += std::exchange(served_, 0);
    if (unsettled_ == 0) started_ = now;  // otherwise the last one has not ended
    began_ = last_ = now;
    return head_;
  }
  // Is it left out of this turn?
  bool leaves_out(const Place& place) const {
    return full_ && place.used_until - last_ > kLittle * weight();
  }
  // The one at `at` was served until now. False: nobody else is in this turn.
  bool served(Place& place, size_t at, Time now) {
    const Duration cost = now - last_ + later_;
    // What was long because others had the core is forgiven after a round.
    place.used_until = std::min(std::max(place.used_until, last_) + cost * weight(),
                                now + kLittle * weight() + kRound);
    last_ = now;
    ++served_;
    if (full_ || count_ <= kFew) return true;
    if (now - began_ < kVisit && served_ * each_ < kVisit) return true;
    full_ = true;
    if (now - head_since_ >= quantum()) {
      head_ = at + 1;
      head_since_ = now;
    }
    if (now - swept_ < kSweep) return false;
    swept_ = now;
    return true;
  }
  // Until now the loop did what was nobody's.
  void resume(Time now) {
    began_ = began_ + (now - last_);
    started_ = started_ + (now - last_);
    last_ = now;
  }
  // The turn has ended, and with it what they left to be done later.
  void end(Time now) {
    const int64_t n = std::exchange(unsettled_, 0) + std::exchange(served_, 0);
    if (n == 0) return;
    learn(each_, (now - started_) / n);
    learn(later_, (now - last_) / n);
  }
  // So many of those before the head have left.
  void left(size_t before) { head_ -= before; }
  size_t head() const { return head_; }

 private:
  // A turn in which others had the core is not taken at its word.
  static void learn(Duration& mean, Duration seen) {
    mean += (std::min(seen, 4 * mean + std::chrono::microseconds(1)) - mean) / 8;
  }
  int64_t weight() const { return kPart * static_cast<int64_t>(count_); }
  Duration quantum() const { return std::min(kQuantum, kRound / static_cast<int64_t>(count_)); }

  size_t count_ = 0, head_ = 0;
  bool full_ = false;
  int64_t served_ = 0, unsettled_ = 0;
  Duration each_{0}, later_{0};  // what one of them costs, and what part of it in the end
  Time started_{}, began_{}, last_{}, head_since_{}, swept_{};
};

}  // namespace forebay
