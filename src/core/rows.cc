#include "core/rows.h"

#include <algorithm>
#include <cstring>

namespace forebay {
namespace {

template <size_t length>
void copy_equal(RowCopy rows) {
  for (; rows.count > 0; --rows.count) {
    std::memcpy(rows.to, rows.from, length);
    rows.to += rows.to_stride;
    rows.from += rows.from_stride;
  }
}

void copy_any(RowCopy rows) {
  for (; rows.count > 0; --rows.count) {
    std::memcpy(rows.to, rows.from, rows.length);
    rows.to += rows.to_stride;
    rows.from += rows.from_stride;
  }
}

// fn(row in memory, its place among the bytes) over the cursor's next bytes.
template <class Fn>
void for_each_row(const Memory& memory, ExtentCursor& cursor, uint64_t bytes, Fn&& fn) {
  for (uint64_t place = 0; place < bytes;) {
    Row row = row_at(memory.shape, cursor);
    const uint64_t left = bytes - place;
    row.first.length = std::min(row.first.length, Length(left));
    row.count = std::min(row.count, left / row.first.length.value);
    fn(row, place);
    const uint64_t moved = row.first.length.value * row.count;
    cursor.advance(Length(moved));
    place += moved;
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

// For the sizes of numbers, and of a cache line, a call of memcpy is most of the time.
void copy_rows(RowCopy rows) {
  switch (rows.length) {
    case 4:
      return copy_equal<4>(rows);
    case 8:
      return copy_equal<8>(rows);
    case 16:
      return copy_equal<16>(rows);
    case 32:
      return copy_equal<32>(rows);
    case 64:
      return copy_equal<64>(rows);
    default:
      return copy_any(rows);
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
  for_each_row(memory, cursor, bytes.size(), [&](const Row& row, uint64_t place) {
    const uint64_t length = row.first.length.value;
    copy_rows({bytes.data() + place, static_cast<int64_t>(length), memory.at(row.first.offset),
               row.stride, length, row.count});
  });
}

void copy_in(std::span<const std::byte> bytes, const Memory& memory, ExtentCursor& cursor) {
  for_each_row(memory, cursor, bytes.size(), [&](const Row& row, uint64_t place) {
    const uint64_t length = row.first.length.value;
    copy_rows({memory.at(row.first.offset), row.stride, bytes.data() + place,
               static_cast<int64_t>(length), length, row.count});
  });
}

}  // namespace forebay
