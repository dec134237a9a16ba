// `forebay bench forward`: what forwarding costs, and what it wins, beside the same work done by
// the clients themselves on the same file system, in one run, interleaved, medians of the rounds.
// (Paper 1, section V, compares the same way.)
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

Result<void> run_bench_forward(const BenchOptions& options);

}  // namespace forebay::bench
