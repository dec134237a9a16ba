// RankBytes: the bytes of one rank in a collective call, between its memory and the windows of
// aggregators (plan/windows.h). Where pieces lie in rows on both sides, they are copied a row at a
// time: a piece of 8 bytes costs a few ns then, and some 20 by itself.
//
// Goes on where it was: windows that rise cost no search. One call's, one thread.
#pragma once

#include <span>

#include "core/rows.h"
#include "plan/view_part.h"

namespace forebay::mpiio {

class RankBytes {
 public:
  // `memory`: from its beginning, as many bytes as the part has.
  RankBytes(const plan::ViewPart& part, const plan::TiledMap& memory)
      : part_(part), file_(part.cursor()), memory_(memory, Length(), part.length) {}

  const plan::ViewPart& part() const { return part_; }

  // Copies what the rank has in the runs, between its memory and a buffer in which the runs lie one
  // after the other, and of which the first `there` bytes count. Returns how many bytes that was.
  uint64_t copy(std::span<const Extent> runs, std::byte* buffer, uint64_t there, RowTo to);

 private:
  struct Place {  // of a run that is being copied
    std::byte* at;
    uint64_t there;  // bytes from it on that count
  };
  // Pieces of a row, or the beginning of one.
  uint64_t copy_pieces(Row pieces, Length stream, const Place& run, Offset run_begins, RowTo to);
  void copy_row(const Row& row, std::byte* at, RowTo to);

  const plan::ViewPart part_;
  plan::TiledCursor file_, memory_;
};

}  // namespace forebay::mpiio
