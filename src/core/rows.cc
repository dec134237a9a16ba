#include "core/rows.h"

#include <algorithm>

namespace forebay {
namespace {

// Between the cursor's next bytes and as many, one after the other.
void copy_dense(const Memory& memory, ExtentCursor& cursor, std::byte* dense, uint64_t bytes,
                RowTo to) {
  while (bytes > 0) {
    const Nest nest = nest_at(memory.shape, cursor, bytes);
    copy_nest(nest, memory.at(nest.first.offset), dense, to);
    cursor.advance(Length(nest.bytes));
    dense += nest.bytes;
    bytes -= nest.bytes;
  }
}

}  // namespace

Row row_at(const Extents& walked, const ExtentCursor& cursor) {
  if (cursor.done()) return {};
  const Row one{cursor.current(), 1, 0};
  if (walked.blocks().size() != 1 || walked.loops().empty()) return one;
  const Length piece = walked.blocks().front().length;
  if (one.first.length != piece) return one;
  const Stride& loop = walked.loops().back();
  const uint64_t index = cursor.position().value / piece.value % loop.count;
  return {one.first, loop.count - index, loop.stride};
}

Nest nest_at(const Extents& walked, const ExtentCursor& cursor, uint64_t most) {
  Nest nest{cursor.current(), {{{1, 0}, {1, 0}, {1, 0}}}, 0};
  nest.first.length = std::min(nest.first.length, Length(most));
  nest.bytes = nest.first.length.value;
  const bool equal = walked.blocks().size() == 1 && nest.first.length == walked.blocks()[0].length;
  if (!equal) return nest;
  uint64_t piece = cursor.position().value / nest.bytes;
  const size_t loops = walked.loops().size();
  for (size_t i = 0; i < std::min(loops, nest.loops.size()); ++i) {
    const Stride& loop = walked.loops()[loops - 1 - i];
    const uint64_t count = std::min(loop.count - piece % loop.count, most / nest.bytes);
    if (count < 2) break;
    nest.loops[i] = {count, loop.stride};
    nest.bytes *= count;
    if (count < loop.count) break;  // not from its beginning to its end
    piece /= loop.count;
  }
  return nest;
}

void copy_nest(const Nest& nest, std::byte* memory, std::byte* dense, RowTo to) {
  const auto length = static_cast<int64_t>(nest.first.length.value);
  const auto& [row, plane, space] = nest.loops;
  for (uint64_t c = 0; c < space.count; ++c) {
    for (uint64_t b = 0; b < plane.count; ++b) {
      std::byte* const at =
          memory + static_cast<int64_t>(b) * plane.stride + static_cast<int64_t>(c) * space.stride;
      copy_rows(to == RowTo::row
                    ? RowCopy{dense, length, at, row.stride, nest.first.length.value, row.count}
                    : RowCopy{at, row.stride, dense, length, nest.first.length.value, row.count});
      dense += length * static_cast<int64_t>(row.count);
    }
  }
}

uint64_t copy_some(const Row& row, uint64_t most, std::byte* first, const Memory& memory,
                   ExtentCursor& cursor, RowTo to) {
  const uint64_t length = row.first.length.value;
  const Extent run = cursor.current();
  const uint64_t pieces = std::min(most, run.length.value / length);
  if (pieces == 0) {
    to == RowTo::row ? copy_out(memory, cursor, {first, length})
                     : copy_in({first, length}, memory, cursor);
    return 1;
  }
  std::byte* const in_memory = memory.at(run.offset);
  const auto dense = static_cast<int64_t>(length);
  copy_rows(to == RowTo::row ? RowCopy{first, row.stride, in_memory, dense, length, pieces}
                             : RowCopy{in_memory, dense, first, row.stride, length, pieces});
  cursor.advance(Length(pieces * length));
  return pieces;
}

void copy_row(const Row& row, std::byte* first, const Memory& memory, ExtentCursor& cursor,
              RowTo to) {
  for (uint64_t done = 0; done < row.count;)
    done += copy_some(row, row.count - done, first + static_cast<int64_t>(done) * row.stride,
                      memory, cursor, to);
}

void copy_out(const Memory& memory, ExtentCursor& cursor, std::span<std::byte> bytes) {
  copy_dense(memory, cursor, bytes.data(), bytes.size(), RowTo::row);
}

void copy_in(std::span<const std::byte> bytes, const Memory& memory, ExtentCursor& cursor) {
  // They are read only, this way.
  copy_dense(memory, cursor, const_cast<std::byte*>(bytes.data()), bytes.size(), RowTo::memory);
}

}  // namespace forebay
