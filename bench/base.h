// `forebay bench base`: what the foundation costs over bare sockets, both measured in one run,
// interleaved, medians of the rounds.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

// Prints the report; an error if something could not be measured or data was wrong.
Result<void> run_bench_base(const BenchOptions& options);

}  // namespace forebay::bench
