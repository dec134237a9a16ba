// Sieve: which parts of a scattered read or write are cheaper to move whole, holes and all, than
// piece by piece (data sieving; paper 5, section 4.3.3, "conditional data sieving").
//
// The paper's finding is kept: the size of the holes decides, not the density of the data. To pass
// over a hole saves a call of the Store and costs the hole's bytes, and the copy of the piece out
// of the buffer in which it then lies; all three are known in advance. Unlike the paper's, which
// decides once for a whole request by a threshold, this one decides piece by piece, so a list of
// clusters far apart is read cluster by cluster.
//
// A request becomes steps, in the order of its stream: windows, and stretches between them that are
// moved as they are. Pieces of a window rise through the file; whatever goes back begins a new one.
//
// Pure. Walks lazily: a step costs its pieces in time, and nothing in memory.
#pragma once

#include <cstdint>
#include <optional>

#include "core/extents.h"

namespace forebay::plan {

// What a Store costs, in bytes that it moves in the same time.
struct SieveCosts {
  uint64_t call = 0;    // one call for one piece, beside its bytes
  uint64_t begin = 0;   // of a window, beside its call: of a write, to read it first
  uint64_t copies = 1;  // bytes that are copied in memory while it moves one
  uint64_t window = 0;  // of a window at most; a limit, not a cost
  // Not 0: windows lie within multiples of it, so that those of different requests meet; and all
  // but large pieces go in one, also by themselves, because it may be shared.
  uint64_t grid = 0;
};

struct SieveStep {
  Extent window;  // to be moved whole; empty: a stretch, to be moved as it is
  Length stream;  // how much of the request's stream it is, from where the last one ended
};

// Is it likely that most of it goes in windows? By the average, at no cost: what to ask before one
// reserves the holes of a request that nobody has walked yet.
bool likely_sieved(const Extents& file, const SieveCosts& costs);

class Sieve {
 public:
  // The extents must outlive it and stay where they are.
  Sieve(const Extents& file, SieveCosts costs);

  // Nothing after the last.
  std::optional<SieveStep> next();

 private:
  struct Run {  // neighbours that would be read together
    Extent range;
    Length stream;
    uint64_t pieces = 0;
    uint64_t saved = 0, lost = 0;
    bool large = false;
  };
  Run take_run();
  bool pays(const Run& run) const;
  uint64_t copy_cost(Length n) const { return n.value / costs_.copies; }
  void look_ahead();
  bool apart(const Run& run) const;

  const SieveCosts costs_;
  const Length total_;
  ExtentCursor cursor_;
  Extent ahead_;  // the piece that comes next; empty: none
  Length taken_;  // of the stream, by runs
  std::optional<SieveStep> found_;
};

}  // namespace forebay::plan
