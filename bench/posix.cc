#include "bench/posix.h"

namespace forebay::bench {

Result<void> run_bench_posix(const BenchOptions& options) {
  BenchOptions own = options;
  if (own.rounds == 0) own.rounds = own.quick ? 1 : 5;
  return run_suite("posix", own, mount_rows);
}

}  // namespace forebay::bench
