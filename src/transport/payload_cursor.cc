#include "transport/payload_cursor.h"

#include <algorithm>
#include <cstring>

namespace forebay {

namespace {

// Below so many bytes per piece on average, an iovec costs the kernel more than a copy costs us.
constexpr uint64_t kFine = 256;

}  // namespace

void PayloadCursor::reset(Memory memory) {
  pieces_.reset();
  memory_ = std::move(memory);
  const Extents& shape = memory_.shape;
  left_ = shape.total().value;
  fine_ = false;
  if (shape.empty()) return;
  if (shape.contiguous()) {
    at_ = memory_.at(shape.bounds().offset);
    return;
  }
  pieces_.emplace(shape);
  fine_ = left_ / shape.pieces() < kFine;
}

PayloadCursor::Described PayloadCursor::describe(std::span<iovec> out, uint64_t most) const {
  Described d;
  most = std::min(most, left_);
  if (!pieces_) {
    if (most == 0 || out.empty()) return d;
    out[0] = {at_, most};
    return {1, most};
  }
  ExtentCursor ahead = *pieces_;
  while (d.count < out.size() && d.bytes < most) {
    const Extent piece = ahead.take(Length(most - d.bytes));
    out[d.count++] = {memory_.at(piece.offset), piece.length.value};
    d.bytes += piece.length.value;
  }
  return d;
}

void PayloadCursor::advance(uint64_t n) {
  FOREBAY_ASSERT(n <= left_);
  left_ -= n;
  if (pieces_) {
    pieces_->advance(Length(n));
  } else {
    at_ += n;
  }
}

template <class Fn>
uint64_t PayloadCursor::walk(uint64_t most, Fn&& fn) {
  const uint64_t n = std::min(most, left_);
  if (!pieces_) {
    if (n != 0) fn(at_, uint64_t{0}, n);
    advance(n);
    return n;
  }
  for (uint64_t done = 0; done < n;) {
    const Extent piece = pieces_->take(Length(n - done));
    fn(memory_.at(piece.offset), done, piece.length.value);
    done += piece.length.value;
  }
  left_ -= n;
  return n;
}

uint64_t PayloadCursor::fill(std::span<const std::byte> from) {
  return walk(from.size(), [&](std::byte* place, uint64_t done, uint64_t n) {
    std::memcpy(place, from.data() + done, n);
  });
}

uint64_t PayloadCursor::drain(std::span<std::byte> to) {
  return walk(to.size(), [&](const std::byte* place, uint64_t done, uint64_t n) {
    std::memcpy(to.data() + done, place, n);
  });
}

}  // namespace forebay
