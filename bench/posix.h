// `forebay bench posix`: what unmodified programs get through the front doors for them, beside what
// such doors cost at best, in one run, interleaved, medians of the rounds.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

Result<void> run_bench_posix(const BenchOptions& options);

// The mount, over a directory and through a server, against libfuse's own passthrough_ll.
void mount_rows(const BenchOptions& options, const std::string& scratch, Report& report);

// Calls under the preload, through a server, against the same calls to the kernel.
void preload_rows(const BenchOptions& options, const std::string& scratch, Report& report);

}  // namespace forebay::bench
