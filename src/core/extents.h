// Extents: which bytes, in which order. The file side and the memory side of every read and write.
//
// An Extents is a list of blocks, repeated by nested strided loops (outermost first):
//
//   for i0 in 0..loops[0].count: for i1 in 0..loops[1].count: ...
//     for b in blocks: the bytes [b.offset + i0*loops[0].stride + i1*loops[1].stride ..., + b.length)
//
// so a plain list has no loops, a strided view has one block, and a view of a billion pieces is a few
// numbers. The order of that walk is the order of the stream: byte k of a request is the k-th byte
// walked, on the file side and on the memory side alike.
//
// Invariants (make() checks them; a valid Extents never overflows):
//  1. every byte lies in [0, kMaxOffset], whatever the strides' signs;
//  2. the total length and the number of pieces fit in 63 bits;
//  3. pieces of length 0 are allowed and walk as nothing; no loop has a count of 0;
//     what names no byte at all is the empty Extents (no blocks, no loops).
// Blocks may overlap and go backwards. Immutable after construction, so any thread may read it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/types.h"

namespace forebay {

struct Extent {
  Offset offset;
  Length length;

  constexpr Offset end() const { return offset + length; }
  constexpr bool empty() const { return length.value == 0; }
  constexpr bool overlaps(const Extent& o) const { return offset < o.end() && o.offset < end(); }
  constexpr bool operator==(const Extent&) const = default;
};

struct Stride {
  uint64_t count = 0;
  int64_t stride = 0;  // bytes from one repetition to the next
  constexpr bool operator==(const Stride&) const = default;
};

class Extents {
 public:
  Extents() = default;                                          // no bytes
  explicit Extents(Extent one);                                 // must be in bounds (asserted)
  // The checked makers: EINVAL for what is out of bounds, EOVERFLOW for totals beyond 63 bits.
  static Result<Extents> make(std::vector<Extent> blocks, std::vector<Stride> loops = {});

  std::span<const Extent> blocks() const { return blocks_; }
  std::span<const Stride> loops() const { return loops_; }

  Length total() const { return total_; }      // bytes walked
  uint64_t pieces() const { return pieces_; }  // blocks walked, empty ones included
  Extent bounds() const { return bounds_; }    // smallest range that holds every byte
  bool empty() const { return total_.value == 0; }
  bool contiguous() const;                     // walks as one range, in rising order

  // The part of the stream [from, from + length), by its place in the stream; it must lie within
  // total(). Loops that it does not cut stay loops.
  Extents slice(Length from, Length length) const;

  // The loops unrolled into a list, neighbours joined, if that takes at most `limit` pieces.
  std::optional<std::vector<Extent>> to_list(uint64_t limit) const;

  bool operator==(const Extents&) const = default;

 private:
  std::vector<Extent> blocks_;
  std::vector<Stride> loops_;
  Length total_;
  uint64_t pieces_ = 0;
  Extent bounds_;
};

// Walks the pieces of an Extents lazily, in stream order. The Extents must outlive it.
class ExtentCursor {
 public:
  explicit ExtentCursor(const Extents& extents);

  bool done() const;
  // What is left of the current piece (never empty unless done).
  Extent current() const;
  // Moves on by n bytes of the stream, n <= what is left in all; cheap whatever n is.
  void advance(Length n);
  // Takes up to `most` bytes of the current piece and moves past them. Neighbouring pieces that
  // continue each other are joined.
  Extent take(Length most);
  Length position() const { return position_; }

 private:
  void settle();
  void load();

  const Extents* extents_;
  std::vector<uint64_t> index_;  // one per loop
  size_t block_ = 0;
  Length within_;     // bytes of the current block already walked
  Length position_;   // bytes of the stream already walked
  int64_t shift_ = 0; // sum of index * stride
};

// Walks two sides of equal total together: fn(Extent a, Extent b) with equal lengths, as long as
// both sides allow. fn returns false to stop.
template <class Fn>
void walk_pairs(const Extents& a, const Extents& b, Fn&& fn) {
  FOREBAY_ASSERT(a.total() == b.total());
  ExtentCursor x(a), y(b);
  while (!x.done()) {
    const Extent p = x.current(), q = y.current();
    const Length n = std::min(p.length, q.length);
    if (!fn(Extent{p.offset, n}, Extent{q.offset, n})) return;
    x.advance(n);
    y.advance(n);
  }
}

// ---- Sets of bytes: sorted, disjoint, joined lists ("normal form"). ----
using ExtentSet = std::vector<Extent>;

ExtentSet normalise(std::vector<Extent> list);
bool is_normal(std::span<const Extent> list);
ExtentSet intersect(std::span<const Extent> a, std::span<const Extent> b);
ExtentSet subtract(std::span<const Extent> a, std::span<const Extent> b);
ExtentSet unite(std::span<const Extent> a, std::span<const Extent> b);
// Cuts every extent at the multiples of `boundary` (a stripe, a page, a chunk), keeping the order.
std::vector<Extent> split_at(std::span<const Extent> list, Length boundary);
// Do two Extents share a byte? Exact while both unroll into at most `limit` pieces, and beyond that
// by their bounds: it may then say yes for two interleaved views, never no for two that overlap.
bool may_overlap(const Extents& a, const Extents& b, uint64_t limit = 4096);

}  // namespace forebay
