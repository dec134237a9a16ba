// The rows stream-direct of `forebay bench forward`: a stream around the page cache.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

// Adds the row, if it is asked for and there is an io_uring to compare with.
void add_direct_row(const BenchOptions& options, const std::string& scratch, Report& report);

}  // namespace forebay::bench
