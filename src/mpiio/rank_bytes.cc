#include "mpiio/rank_bytes.h"

#include <algorithm>

namespace forebay::mpiio {
namespace {

// Equal pieces here and there.
struct Side {
  std::byte* at;
  int64_t stride;
};
void copy_between(Side window, Side memory, uint64_t length, uint64_t count, RowTo to) {
  const auto& [into, from] =
      to == RowTo::row ? std::pair(window, memory) : std::pair(memory, window);
  copy_rows({into.at, into.stride, from.at, from.stride, length, count});
}

std::byte* address(Offset offset) {
  return reinterpret_cast<std::byte*>(offset.value);
}

}  // namespace

// Row by row: whole pieces in one piece of memory, pieces equal to those of memory, or a piece in
// several.
void RankBytes::copy_row(const Row& row, std::byte* at, RowTo to) {
  const uint64_t length = row.first.length.value;
  const auto dense = static_cast<int64_t>(length);
  for (uint64_t done = 0; done < row.count;) {
    std::byte* const piece = at + static_cast<int64_t>(done) * row.stride;
    const uint64_t left = (row.count - done) * length, run = memory_.run_left().value;
    if (run == length) {
      const Row same = memory_.take_row(Length(left));
      copy_between({piece, row.stride}, {address(same.first.offset), same.stride}, length,
                   same.count, to);
      done += same.count;
    } else if (run > length) {
      const uint64_t count = std::min(run, left) / length;
      const Extent whole = memory_.take(Length(count * length));
      copy_between({piece, row.stride}, {address(whole.offset), dense}, length, count, to);
      done += count;
    } else {
      for (uint64_t within = 0; within < length;) {
        const Nest small = memory_.take_nest(Length(length - within));
        copy_nest(small, address(small.first.offset), piece + within, to);
        within += small.bytes;
      }
      ++done;
    }
  }
}

uint64_t RankBytes::copy_pieces(Row pieces, Length stream, const Place& run, Offset run_begins,
                                RowTo to) {
  const uint64_t length = pieces.first.length.value;
  const uint64_t at = (pieces.first.offset - run_begins).value;
  if (at >= run.there) return 0;
  const Length in_memory = stream - part_.from;
  if (memory_.position() != in_memory) memory_.seek(in_memory);
  const uint64_t last = at + (pieces.count - 1) * static_cast<uint64_t>(pieces.stride);
  if (last + length <= run.there) {
    copy_row(pieces, run.at + at, to);
    return length * pieces.count;
  }
  uint64_t copied = 0, place = at;
  for (uint64_t k = 0; k < pieces.count && place < run.there; ++k) {
    const uint64_t some = std::min(length, run.there - place);
    copy_row({{pieces.first.offset, Length(some)}, 1, 0}, run.at + place, to);
    copied += some;
    place += static_cast<uint64_t>(pieces.stride);
  }
  return copied;
}

uint64_t RankBytes::copy(std::span<const Extent> runs, std::byte* buffer, uint64_t there,
                         RowTo to) {
  if (runs.empty()) return 0;
  const Offset begin = runs.front().offset;
  const plan::ViewPart inside = part_.within({begin, runs.back().end() - begin});
  if (inside.empty()) return 0;
  const Length end = inside.from + inside.length;
  if (file_.position() != inside.from) file_.seek(inside.from);
  uint64_t copied = 0;
  size_t run = 0;
  uint64_t place = 0;  // of that run
  while (file_.position() < end) {
    Length stream = file_.position();
    Row row = file_.take_row(end - stream);
    while (row.count > 0) {
      const Extent piece = row.first;
      for (; run < runs.size() && runs[run].end() <= piece.offset; ++run)
        place += runs[run].length.value;
      if (run == runs.size()) return copied;
      const Extent& now = runs[run];
      const Place in{buffer + place, there - std::min(there, place)};
      if (piece.end() <= now.offset) {  // in none: to the next that is
        file_.seek(std::clamp(part_.view.position_beyond(now.offset), stream, end));
        break;
      }
      if (piece.offset < now.offset || piece.end() > now.end()) {
        const Offset from = std::max(piece.offset, now.offset),
                     to_end = std::min(piece.end(), now.end());
        stream += from - piece.offset;
        copied += copy_pieces({{from, to_end - from}, 1, 0}, stream, in, now.offset, to);
        file_.seek(stream + (to_end - from));
        break;
      }
      const uint64_t room = (now.end() - piece.end()).value;
      const uint64_t whole =
          row.count == 1 ? 1 : std::min(row.count, room / static_cast<uint64_t>(row.stride) + 1);
      copied += copy_pieces({piece, whole, row.stride}, stream, in, now.offset, to);
      stream += Length(whole * piece.length.value);
      row.first.offset += Length(whole * static_cast<uint64_t>(row.stride));
      row.count -= whole;
    }
  }
  return copied;
}

}  // namespace forebay::mpiio
