// `forebay bench base`: what the foundation costs over bare sockets, both measured in one run,
// interleaved, medians of the rounds.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace forebay::bench {

struct BenchOptions {
  bool json = false;
  std::string directory;          // scratch space; a folder of ours is made in it and removed
  std::vector<std::string> only;  // ids; empty: all
  int rounds = 5;
  double seconds = 0.6;  // of one measurement of round trips
};

// Prints the report; an error if something could not be measured or data was wrong.
Result<void> run_bench_base(const BenchOptions& options);

}  // namespace forebay::bench
