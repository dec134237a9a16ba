#include "bench/posix.h"

namespace forebay::bench {

Result<void> run_bench_posix(const BenchOptions& options) {
  BenchOptions own = options;
  if (own.rounds == 0) own.rounds = own.quick ? 1 : 5;
  return run_suite("posix", own,
                   [](const BenchOptions& rows, const std::string& scratch, Report& report) {
                     mount_rows(rows, scratch, report);
                     preload_rows(rows, scratch, report);
                   });
}

}  // namespace forebay::bench
