// Extents: which bytes, in which order. The file side and the memory side of every read and write.
//
// An Extents is a list of blocks, repeated by nested strided loops (outermost first):
//
//   for i0 in 0..loops[0].count: for i1 in 0..loops[1].count: ...
//     for b in blocks: the bytes [b.offset + i0*loops[0].stride + i1*loops[1].stride ..., +
//     b.length)
//
// so a plain list has no loops, a strided view has one block, and a view of a billion pieces is a
// few numbers. The order of that walk is the order of the stream: byte k of a request is the k-th
// byte walked, on the file side and on the memory side alike.
//
// Invariants (make() checks them; a valid Extents never overflows):
//  1. every byte lies in [0, kMaxOffset), whatever the strides' signs;
//  2. the total length fits in 63 bits, and so does the number of pieces;
//  3. the form is a small one: make() drops empty blocks and loops of one repetition, joins blocks
//     that continue each other, and makes one block of a loop over a block that continues itself.
//     So no piece is empty, at most every second piece continues the one before it, there are at
//     most 62 loops, and what names no byte at all is the empty Extents (no blocks, no loops).
// Blocks may overlap and go backwards. Immutable after construction, so any thread may read it.
// It costs its blocks (16 bytes each) and 1 % more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/extent_set.h"
#include "core/result.h"
#include "core/types.h"

namespace forebay {

struct Stride {
  uint64_t count = 0;
  int64_t stride = 0;  // bytes from one repetition to the next
  constexpr bool operator==(const Stride&) const = default;
};

class Extents {
 public:
  Extents() = default;           // no bytes
  explicit Extents(Extent one);  // must be in bounds (asserted)
  // The checked maker, safe with numbers from anywhere: EINVAL for what is out of bounds, EOVERFLOW
  // for totals beyond 63 bits. A loop with a count of 0 makes it empty.
  static Result<Extents> make(std::vector<Extent> blocks, std::vector<Stride> loops = {});

  std::span<const Extent> blocks() const { return blocks_; }
  std::span<const Stride> loops() const { return loops_; }

  Length total() const { return total_; }      // bytes walked
  uint64_t pieces() const { return pieces_; }  // blocks walked
  Extent bounds() const { return bounds_; }    // smallest range that holds every byte
  bool empty() const { return total_.value == 0; }
  // Walks as one range, in rising order (or is empty).
  bool contiguous() const { return pieces_ <= 1; }

  // The part of the stream [from, from + length), by its place in the stream; it must lie within
  // total(). Loops stay loops if the part is made of whole repetitions, of whichever loop. Any
  // other part becomes a list, which costs 16 bytes for each piece of the part: fine for the chunks
  // of a stream, and nothing to do with gigabytes of an unaligned view of tiny pieces (walk those
  // with a cursor).
  Extents slice(Length from, Length length) const;

  // The loops unrolled into a list, neighbours joined, if that takes at most `limit` extents.
  std::optional<std::vector<Extent>> to_list(uint64_t limit) const;

  bool operator==(const Extents&) const = default;

 private:
  friend class ExtentCursor;
  // The block that holds byte `at` of one walk of the list, and where in the stream it begins.
  struct Found {
    size_t block;
    Length start;
  };
  Found find(Length at) const;
  Extents slice_list(Length from, Length length, int64_t by) const;
  Extents slice_unrolled(Length from, Length length) const;
  Extents shifted(int64_t by, size_t first_loop, uint64_t count) const;
  Result<void> measure();

  std::vector<Extent> blocks_;
  std::vector<Stride> loops_;
  // starts_[i] is where block (i + 1) * kIndexStep begins in one walk of the list.
  static constexpr size_t kIndexStep = 64;
  std::vector<Length> starts_;
  Length list_total_;  // of one walk of the list
  Length total_;
  uint64_t pieces_ = 0;
  Extent bounds_;
};

// Walks the pieces of an Extents lazily, in stream order. The Extents must outlive it and stay
// where it is.
class ExtentCursor {
 public:
  explicit ExtentCursor(const Extents& extents);

  bool done() const { return position_ == extents_->total(); }
  // What is left of the current piece (never empty unless done).
  Extent current() const;
  // Moves on by n bytes of the stream, n <= what is left in all. Steps of a few pieces are steps;
  // any other costs O(loops + log blocks).
  void advance(Length n);
  // Takes up to `most` bytes and moves past them: the current piece, and those after it that
  // continue it.
  Extent take(Length most);
  // The same for a list of up to `pieces`, which costs 16 bytes for each.
  Extents take_list(Length most, size_t pieces);
  Length position() const { return position_; }

 private:
  void next_piece();
  void seek(Length position);

  const Extents* extents_;
  std::vector<uint64_t> index_;  // one per loop
  size_t block_ = 0;
  Length within_;      // bytes of the current block already walked
  Length position_;    // bytes of the stream already walked
  int64_t shift_ = 0;  // sum of index * stride
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

}  // namespace forebay
