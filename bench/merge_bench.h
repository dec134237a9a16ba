// The row merge-1m: what the scheduler's plan costs for one request, among a million pending.
#pragma once

#include <string>
#include <vector>

#include "bench/report.h"
#include "plan/merger.h"

namespace forebay::bench {

// Microseconds to insert, merge and issue one request, with so many pending at random disjoint
// offsets. `verified` becomes false if a request did not come out once.
double merge_cost(plan::Merger::Kind kind, size_t pending, uint64_t seed, bool& verified);

struct MergeCosts {
  struct Line {
    size_t pending;
    double tree_us;
    double brute_us;  // 0: not measured, it would take hours
  };
  std::vector<Line> lines;
  size_t crossover = 0;  // from this many pending on the tree is cheaper; 0: it never was dearer
  bool verified = true;

  // How many times dearer one request is among a million than among a thousand: log n says twice.
  double growth() const;
};

// From ten to a million pending, brute force to ten thousand; medians of `rounds`.
MergeCosts measure_merging(unsigned rounds);

// merge-1m: 3 us over the tree's cost with a million pending. All costs are in its details.
Row merge_1m(unsigned rounds);

}  // namespace forebay::bench
