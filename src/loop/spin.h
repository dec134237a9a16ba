// Spin: is it worth looking again and again for a moment before going to sleep?
//
// Waking a sleeper on another core costs both sides some 20 us of CPU and the sleeper's user 25 to
// 30 us; an answer that comes sooner is better waited for awake. Whether it does is known only by
// trying: what came in time makes the next try likelier, what did not makes it rarer, down to one
// wait in 256. So two that talk to each other stay awake, and whoever computes in between, or
// shares its core with many, sleeps as if there were no spinning.
//
// Pure: the waiting itself is the caller's. One thread at a time.
#pragma once

#include <algorithm>

#include "core/clock.h"

namespace forebay {

class Spin {
 public:
  // As long as two wake-ups take: the other side may have to be woken before it can answer.
  static constexpr Duration kLongest = std::chrono::microseconds(50);

  // Is this wait to be begun awake? If so, note() says how it ended.
  bool due() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  void note(bool came) {
    rarity_ = came ? std::max(rarity_ - 1, 0) : std::min(rarity_ + 2, kRarest);
    skip_ = (1u << rarity_) - 1;
  }

 private:
  static constexpr int kRarest = 8;
  int rarity_ = 0;     // one wait in 2^rarity_ is begun awake
  unsigned skip_ = 0;  // waits until the next one
};

}  // namespace forebay
