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

// Copies the next bytes of the cursor, which walks the memory's shape and has as many, to `bytes`
// or from them.
void copy_out(const Memory& memory, ExtentCursor& cursor, std::span<std::byte> bytes);
void copy_in(std::span<const std::byte> bytes, const Memory& memory, ExtentCursor& cursor);

}  // namespace forebay
