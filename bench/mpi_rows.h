// `forebay bench mpi`: MPI-IO with and without us, the same program and the same MPI, in turn.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

// Prints the report; an error if something could not be measured or data was wrong.
Result<void> run_bench_mpi(BenchOptions options);

}  // namespace forebay::bench
