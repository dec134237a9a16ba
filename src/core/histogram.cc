#include "core/histogram.h"

#include <bit>
#include <cmath>

namespace forebay {

unsigned Histogram::step_of(uint64_t value) {
  if (value < 4) return static_cast<unsigned>(value);
  const unsigned width = static_cast<unsigned>(std::bit_width(value));  // 3 to 64
  return (width - 2) * 4 + static_cast<unsigned>((value >> (width - 3)) & 3);
}

uint64_t Histogram::last_of(unsigned step) {
  if (step < 4) return step;
  const unsigned width = step / 4 + 2;
  const uint64_t first = (4 + uint64_t{step % 4}) << (width - 3);
  return first + ((uint64_t{1} << (width - 3)) - 1);
}

uint64_t Histogram::count() const {
  uint64_t sum = 0;
  for (const Counter& c : steps_) sum += c.get();
  return sum;
}

uint64_t Histogram::percentile(double share) const {
  const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(count())));
  uint64_t sum = 0, last = 0;
  for (unsigned step = 0; step < kSteps; ++step) {
    if (steps_[step].get() == 0) continue;
    sum += steps_[step].get();
    last = last_of(step);
    if (sum >= wanted) break;
  }
  return last;
}

}  // namespace forebay
