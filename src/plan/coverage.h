// Coverage: the bytes of the file that a collective call's ranks name together, as rising runs, cut
// into windows of so many bytes: what an aggregator moves in one iteration. A window's buffer holds
// its runs one after the other and nothing else ("no gap bytes", paper 5, section 4.2.1), so byte k
// of it is the k-th byte of the runs.
//
// Lazy: holds a cursor for each rank, and the runs of one window. What lies between the ranges that
// are asked for is passed over without a look at it. Two ways to unite pieces: where they are large
// or far apart, a heap gives the lowest (O(log ranks) for a piece); where they are small and dense,
// each rank's are marked in a bitmap of the file's bytes, several times cheaper.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/view_part.h"

namespace forebay::plan {

// The first range at or after an offset (cut at it), of some set of ranges; nothing after the last.
using Ranges = std::function<std::optional<Extent>(Offset)>;

// Those of a map that is monotone; and what is in both of two, before an end: two that never meet
// would be compared to the end of the largest file there is.
Ranges ranges_of(TiledMap map);
Ranges in_both(Ranges a, Ranges b, Offset end);

class Coverage {
 public:
  // The parts must outlive it. `bounds`: hold all of the ranges; parts without a byte there cost
  // nothing from then on.
  Coverage(std::span<const ViewPart> parts, Ranges ranges,
           Extent bounds = {Offset(0), Length(kMaxOffset)});

  // The next runs, with at most so many bytes and runs; empty: there are no more. Runs are as long
  // as they can be: where one ends, there is a byte that is not asked for, or `most_bytes` are
  // full.
  std::vector<Extent> next(uint64_t most_bytes, size_t most_runs);

 private:
  struct Walker {
    const ViewPart* part;
    Length from, end;  // of the part, in its stream
    TiledCursor cursor;
    Extent piece;  // empty: at its end
  };
  void step(Walker& walker);
  void skip_to(Walker& walker, Offset offset);
  void sink(size_t i);
  bool find_range();
  Offset joined_end(Offset limit);
  bool dense(Offset limit);
  void mark_all(Offset limit);
  // Appends the runs that are marked, from at_ up to the limit; moves at_.
  uint64_t take_marked(Offset limit, size_t most_runs, std::vector<Extent>& runs);
  void start();
  void order();

  const std::span<const ViewPart> parts_;
  std::vector<Walker> walkers_;  // a heap: the lowest piece is first
  const Ranges ranges_;
  const Extent bounds_;
  std::optional<Extent> range_;
  Offset at_;                    // all before it has been given
  Offset sparse_until_;          // known not to be dense
  std::vector<uint64_t> marks_;  // a bit for each byte from at_ on
};

// Calls fn(place in the window's buffer, place in the part's stream, length) for the bytes of a
// part that lie in the runs, in order. The runs are rising and apart.
template <class Fn>
void place_in_window(std::span<const Extent> runs, const ViewPart& part, Fn&& fn) {
  if (runs.empty()) return;
  const ViewPart inside =
      part.within({runs.front().offset, runs.back().end() - runs.front().offset});
  const Length end = inside.from + inside.length;
  TiledCursor cursor = inside.cursor();
  size_t run = 0;
  uint64_t before = 0;  // bytes of the runs before this one
  while (!cursor.done()) {
    Length at = cursor.position();
    Extent piece = cursor.take(cursor.left());
    while (!piece.empty()) {
      while (run < runs.size() && runs[run].end() <= piece.offset)
        before += runs[run++].length.value;
      if (run == runs.size()) return;
      if (piece.end() <= runs[run].offset) {  // in none: to the next that is
        cursor.seek(
            std::clamp(inside.view.position_beyond(runs[run].offset), cursor.position(), end));
        break;
      }
      const Offset begin = std::max(piece.offset, runs[run].offset);
      const Offset stop = std::min(piece.end(), runs[run].end());
      at += begin - piece.offset;
      fn(before + (begin - runs[run].offset).value, at, (stop - begin).value);
      at += stop - begin;
      piece = {stop, piece.end() - stop};
    }
  }
}

// How many bytes of the part lie in the runs.
uint64_t bytes_in_window(std::span<const Extent> runs, const ViewPart& part);

}  // namespace forebay::plan
