// Rows: equal pieces at equal distances, which most strided lists are made of. Walking and copying
// them a row at a time costs a fraction of what a piece at a time does.
#pragma once

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
void copy_rows(RowCopy rows);

// Copies between a row whose first piece lies at `first` and the cursor's next bytes, which are as
// many and of any shape. `memory` is what the cursor walks.
enum class RowTo : bool { memory, row };
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
