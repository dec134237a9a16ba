// The row fetch-add-relay of `forebay bench state`: a number that lives at another server than the
// client talks to.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

Row relay_row(const std::string& scratch, const BenchOptions& options);

}  // namespace forebay::bench
