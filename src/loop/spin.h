// Spin: is it worth looking again and again for a while before going to sleep, and for how long?
//
// Waking a sleeper on another core costs both sides some 20 us of CPU and the sleeper's user 25 to
// 30 us; what comes sooner is better waited for awake. Whoever waits awake yields its core between
// looks, so that what others do with it meanwhile is no loss: only the waiter's own time is
// counted. So clients that share their cores with the server hand them to each other in turn, and
// nobody is put to sleep and woken, which costs three times as much.
//
// Where many wait awake in turn, a turn takes longer: crowd() says how many there are.
//
// It has failed if nothing came before the waiter had spent what a sleep and a wake-up cost, or if
// somebody who computes took the core for a whole slice: one that is woken from sleep need not wait
// for that. A failure costs about as much as the sleep that follows, so one or two do not matter.
// After several in a row it is not tried for a while: long enough that all failures together cost a
// small part of the time, and twice as long after each further one until something comes in time.
// Only who knows that something is about to come, expect()s it, does not care for that.
//
// Pure: the waiting itself and the clock are the caller's. One thread at a time.
#pragma once

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace forebay {

class Spin {
 public:
  static constexpr Duration kLongest = std::chrono::milliseconds(4);
  static constexpr Duration kBudget = std::chrono::microseconds(50);  // of the waiter's own time
  static constexpr Duration kLook =
      std::chrono::microseconds(2);  // the most that a look counts for
  // Of one who computes; many who only look in turn do not take so long.
  static constexpr Duration kSlice = std::chrono::microseconds(1300);
  // And so much longer for each of a crowd; more than so many do not count.
  static constexpr Duration kTurn = std::chrono::microseconds(15);
  static constexpr unsigned kMostCrowd = 1024;
  static constexpr unsigned kMisses = 8;  // failures in a row that are none yet
  // After more, so that one costs a part in 64 at most; longer and longer while they go on.
  static constexpr Duration kFirstRest = 64 * kBudget;
  static constexpr Duration kLongRest = std::chrono::milliseconds(50);
  // After a lost slice; longer and longer while that goes on. Not longer at once: a file system
  // that was slow for a moment looks the same to everybody who waits for it.
  static constexpr Duration kShortPause = std::chrono::milliseconds(10);
  static constexpr Duration kLongPause = std::chrono::milliseconds(320);
  static constexpr Duration kPatience = std::chrono::microseconds(120);  // with what is expected

  // Is a wait that begins now to be begun awake? If so, begin() it, and end() says how it ended.
  bool due(Time now) const { return expected_ || now >= next_; }
  void expect() { expected_ = true; }  // in the next wait
  void crowd(unsigned others) { others_ = std::min(others, kMostCrowd); }
  // What one who computes would take, and many who look in turn do not.
  Duration slice() const { return kSlice + others_ * kTurn; }
  void begin(Time now) {
    started_ = last_ = now;
    known_ = std::exchange(expected_, false);
    left_ = known_ ? kPatience : kBudget;
  }
  // After each look that found nothing: false if it is time to sleep.
  bool go_on(Time now) {
    const Duration step = now - last_;
    if (step >= slice()) return false;
    last_ = now;
    left_ -= std::min(step, kLook);
    return left_ > Duration::zero() && now - started_ < kLongest + 8 * others_ * kTurn;
  }
  void end(bool came, Time now) {
    if (now - last_ >= slice()) return lose_slice(now);
    pause_ /= 2;
    // That what was announced came says nothing about what was not.
    if (!known_) misses_ = came ? 0 : misses_ + 1;
    const bool rests = !came && (known_ || misses_ > kMisses);
    if (rests) next_ = now + rest_;
    rest_ = rests ? std::min(2 * rest_, kLongRest) : kFirstRest;
  }
  // The core was given away, and came back after a slice.
  void lose_slice(Time now) {
    pause_ = std::clamp(2 * pause_, kShortPause, kLongPause);
    next_ = now + pause_;
  }

 private:
  Time next_{}, started_{}, last_{};
  Duration left_{0}, pause_{0}, rest_ = kFirstRest;
  unsigned misses_ = 0, others_ = 0;
  bool expected_ = false;
  bool known_ = false;  // this wait is for what was expected
};

}  // namespace forebay
