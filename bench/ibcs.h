// `forebay bench ibcs`: what the order of plan/order.h (IBCS, paper 3) gains over even realms in
// ROMIO's order and over stripe-cyclic realms, on a simulated cluster (ibcs_model.h) in virtual
// time. The same on every machine.
#pragma once

#include "bench/measure.h"

namespace forebay::bench {

Result<void> run_bench_ibcs(const BenchOptions& options);

}  // namespace forebay::bench
