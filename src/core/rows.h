// Rows: equal pieces at equal distances, which most strided lists are made of. Walking and copying
// them a row at a time costs a fraction of what a piece at a time does.
#pragma once

#include <array>
#include <cstring>
#include <span>

#include "core/extents.h"
#include "core/memory.h"

namespace forebay {

struct Row {
  Extent first;
  uint64_t count = 0;
  int64_t stride = 0;
};

// What is left of the cursor's current piece, and, if that is all of it, how many pieces from it on
// are equal and equally far apart, as far as the innermost loop goes. `walked` is what the cursor
// walks.
Row row_at(const Extents& walked, const ExtentCursor& cursor);

// `count` pieces of `length` bytes, each so far from the one before it.
struct RowCopy {
  std::byte* to;
  int64_t to_stride;
  const std::byte* from;
  int64_t from_stride;
  uint64_t length;
  uint64_t count;
};
namespace detail {
template <size_t length>
inline void copy_equal(RowCopy rows) {
  for (; rows.count > 0; --rows.count) {
    std::memcpy(rows.to, rows.from, length);
    rows.to += rows.to_stride;
    rows.from += rows.from_stride;
  }
}
}  // namespace detail

// For the sizes of numbers, and of a cache line, a call of memcpy is most of the time. Inline: to
// pass rows in memory makes the processor wait for all copies before, if these miss its cache.
inline void copy_rows(const RowCopy& rows) {
  switch (rows.length) {
    case 4:
      return detail::copy_equal<4>(rows);
    case 8:
      return detail::copy_equal<8>(rows);
    case 16:
      return detail::copy_equal<16>(rows);
    case 32:
      return detail::copy_equal<32>(rows);
    case 64:
      return detail::copy_equal<64>(rows);
    default:
      for (uint64_t i = 0; i < rows.count; ++i)
        std::memcpy(rows.to + static_cast<int64_t>(i) * rows.to_stride,
                    rows.from + static_cast<int64_t>(i) * rows.from_stride, rows.length);
  }
}

// Equal pieces in loops, the innermost first.
struct Nest {
  Extent first;
  std::array<Stride, 3> loops;
  uint64_t bytes = 0;  // in all
};

// What is left of the cursor's current piece, and, if that is all of it, the pieces from it on in
// whole loops, as far as they fit in so many bytes.
Nest nest_at(const Extents& walked, const ExtentCursor& cursor, uint64_t most);

enum class RowTo : bool { memory, row };
// Copies between a nest's pieces, the first of which lies at `memory`, and as many bytes one after
// the other.
void copy_nest(const Nest& nest, std::byte* memory, std::byte* dense, RowTo to);

// Copies between a row whose first piece lies at `first` and the cursor's next bytes, which are as
// many and of any shape. `memory` is what the cursor walks.
void copy_row(const Row& row, std::byte* first, const Memory& memory, ExtentCursor& cursor,
              RowTo to);
// The same of as many of its pieces as lie in one piece of memory, `most` at most, or of one that
// lies in several. Returns how many.
uint64_t copy_some(const Row& row, uint64_t most, std::byte* first, const Memory& memory,
                   ExtentCursor& cursor, RowTo to);

// Copies the next bytes of the cursor, which walks the memory's shape and has as many, to `bytes`
// or from them.
void copy_out(const Memory& memory, ExtentCursor& cursor, std::span<std::byte> bytes);
void copy_in(std::span<const std::byte> bytes, const Memory& memory, ExtentCursor& cursor);

}  // namespace forebay
