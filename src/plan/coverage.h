// Coverage: the bytes of the file that a collective call's ranks name together, as rising runs, cut
// into windows of so many bytes: what an aggregator moves in one iteration. A window's buffer holds
// its runs one after the other and nothing else ("no gap bytes", paper 5, section 4.2.1), so byte k
// of it is the k-th byte of the runs.
//
// Lazy: holds a cursor for each rank, and the runs of one window. What lies between the ranges that
// are asked for is passed over without a look at it. Two ways to unite pieces: where they are large
// or far apart, a heap gives the lowest (O(log ranks) for a piece); where they are small and dense,
// each rank's are marked in a bitmap of the file's bytes, several times cheaper. Either way ranks
// without a piece where it is cost nothing there.
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
  // nothing from then on, and those that say so (ViewPart::around) a comparison before.
  Coverage(std::span<const ViewPart> parts, Ranges ranges,
           Extent bounds = {Offset(0), Length(kMaxOffset)});

  // The next runs, with at most so many bytes and runs; empty: there are no more. Runs are as long
  // as they can be: where one ends, there is a byte that is not asked for, or `most_bytes` are
  // full.
  std::vector<Extent> next(uint64_t most_bytes, size_t most_runs);

  // The same for who may read what is not asked for: a run of all bytes from the next one that is
  // on, up to most_bytes, if the parts have half of them or more; then at no piece is looked.
  std::vector<Extent> next_through(uint64_t most_bytes, size_t most_runs);

  // What it has cost so far: looks into parts, pieces, and comparisons of them. For tests.
  uint64_t steps() const { return steps_; }

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
  void find_before(Offset limit);
  bool dense(Offset limit);
  void mark_all(Offset limit);
  // Appends the runs that are marked, from at_ up to the limit; moves at_.
  uint64_t take_marked(Offset limit, size_t most_runs, std::vector<Extent>& runs);
  void start();
  void order();
  bool worth_reading(Extent range);

  std::vector<const ViewPart*> near_;  // those that had bytes from at_ on when it last started
  std::vector<Walker> walkers_;        // a heap: the lowest piece is first
  std::vector<size_t> before_;         // some of them, rising
  const Ranges ranges_;
  const Extent bounds_;
  std::optional<Extent> range_;
  Offset end_;                   // of the last byte of all parts, for next_through()
  Offset at_;                    // all before it has been given
  Offset sparse_until_;          // known not to be dense
  std::vector<uint64_t> marks_;  // a bit for each byte from at_ on
  uint64_t steps_ = 0;
};

// A window's runs, rising and apart, and where in its buffer each begins (places_of()).
struct PlacedRuns {
  std::span<const Extent> runs;
  std::span<const uint64_t> places;
};
std::vector<uint64_t> places_of(std::span<const Extent> runs);

// The first of the runs, from `run` on, that ends beyond an offset: in as many steps as the
// logarithm of how far it is. Adds them to `steps`.
size_t run_beyond(std::span<const Extent> runs, size_t run, Offset offset, uint64_t& steps);

// Calls fn(run, offset in the file, place in the part's stream, length) for the bytes of a part
// that lie in the runs, in order. Returns how many steps it took: for each piece that it comes to,
// those of run_beyond(), so that a part costs no more for all that others have in the window.
template <class Fn>
uint64_t find_in_runs(std::span<const Extent> runs, const ViewPart& part, Fn&& fn) {
  if (runs.empty() || part.empty()) return 0;
  const ViewPart inside =
      part.within({runs.front().offset, runs.back().end() - runs.front().offset});
  if (inside.empty()) return 1;
  const Length end = inside.from + inside.length;
  TiledCursor cursor = inside.cursor();
  size_t run = 0;
  uint64_t steps = 1;
  while (!cursor.done()) {
    Length at = cursor.position();
    Extent piece = cursor.take(cursor.left());
    while (!piece.empty()) {
      ++steps;
      run = run_beyond(runs, run, piece.offset, steps);
      if (run == runs.size()) return steps;
      if (piece.end() <= runs[run].offset) {  // in none: to the next that is
        cursor.seek(
            std::clamp(inside.view.position_beyond(runs[run].offset), cursor.position(), end));
        break;
      }
      const Offset begin = std::max(piece.offset, runs[run].offset);
      const Offset stop = std::min(piece.end(), runs[run].end());
      at += begin - piece.offset;
      fn(run, begin, at, (stop - begin).value);
      at += stop - begin;
      piece = {stop, piece.end() - stop};
    }
  }
  return steps;
}

// The same with places in the window's buffer: fn(place, place in the part's stream, length).
template <class Fn>
uint64_t place_in_window(const PlacedRuns& window, const ViewPart& part, Fn&& fn) {
  return find_in_runs(window.runs, part, [&](size_t run, Offset begin, Length at, uint64_t length) {
    fn(window.places[run] + (begin - window.runs[run].offset).value, at, length);
  });
}
// For who places one part only: adds up the runs as it goes.
template <class Fn>
void place_in_window(std::span<const Extent> runs, const ViewPart& part, Fn&& fn) {
  size_t next = 0;
  uint64_t place = 0;  // of that run
  find_in_runs(runs, part, [&](size_t run, Offset begin, Length at, uint64_t length) {
    for (; next < run; ++next) place += runs[next].length.value;
    fn(place + (begin - runs[run].offset).value, at, length);
  });
}

// The part's bytes that lie in the ranges, in order; nothing if they are more than so many pieces.
// Ranges without a piece, and pieces between two of them, are passed over.
std::optional<Extents> pieces_in(const Ranges& ranges, const ViewPart& part, size_t most_pieces);

// How many bytes of the part lie in the runs.
uint64_t bytes_in_window(std::span<const Extent> runs, const ViewPart& part);

}  // namespace forebay::plan
