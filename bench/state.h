// `forebay bench state`: what clients share about a file: numbers, and appends.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

// Prints the report; an error if something could not be measured or data was wrong.
Result<void> run_bench_state(const BenchOptions& options);

}  // namespace forebay::bench
