// Histogram: how often which values were seen, in steps of a fifth or finer, over all of 64 bits:
// latencies in nanoseconds, sizes. A fixed 2 KiB. Any thread; relaxed, as counters are.
#pragma once

#include <array>
#include <cstdint>

#include "core/counters.h"

namespace forebay {

class Histogram {
 public:
  void add(uint64_t value) { steps_[step_of(value)].add(); }

  uint64_t count() const;
  // A value that the given share (0 to 1) of those seen do not exceed, rounded up to its step; 0 if
  // none was seen.
  uint64_t percentile(double share) const;

 private:
  // Four steps for each power of two.
  static constexpr unsigned kSteps = 63 * 4;
  static unsigned step_of(uint64_t value);
  static uint64_t last_of(unsigned step);

  std::array<Counter, kSteps> steps_;
};

}  // namespace forebay
