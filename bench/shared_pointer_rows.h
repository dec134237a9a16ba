// Rows shared-fp of `forebay bench state`: MPI writes at the shared file pointer, with and without
// us, the same program and the same MPI, in turn.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

void shared_pointer_rows(const BenchOptions& options, const std::string& scratch, Report& report);

}  // namespace forebay::bench
