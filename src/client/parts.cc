#include "client/parts.h"

namespace forebay {

// Whole blocks of the list, `most_` of them, but not across the end of one walk of the list: a
// slice across it would be unrolled.
Length Parts::next_length() const {
  const auto blocks = file_.blocks();
  const uint64_t left = file_.total().value - done_;
  uint64_t walk = 0;
  for (const Extent& block : blocks) walk += block.length.value;
  uint64_t skip = done_ % walk;
  uint64_t length = 0, taken = 0;
  for (const Extent& block : blocks) {
    if (skip >= block.length.value) {
      skip -= block.length.value;
      continue;
    }
    length += block.length.value - skip;
    skip = 0;
    if (++taken == most_) break;
  }
  return Length(std::min(length, left));
}

Parts::Part Parts::next() const {
  const Length length = next_length();
  return {file_.slice(Length(done_), length), memory_.slice(Length(done_), length)};
}

bool Parts::advance(uint64_t count) {
  const uint64_t asked = next_length().value;
  FOREBAY_ASSERT(count <= asked);
  done_ += count;
  return count < asked || done_ == file_.total().value;
}

bool Parts::shrink() {
  if (most_ <= 1) return false;
  most_ /= 2;
  return true;
}

}  // namespace forebay
