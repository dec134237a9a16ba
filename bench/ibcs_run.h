// Collective calls on the simulated cluster of `forebay bench ibcs`.
#pragma once

#include <set>

#include "bench/ibcs_load.h"
#include "bench/ibcs_model.h"

namespace forebay::bench {

struct IbcsResult {
  double seconds = 0;
  uint64_t bytes = 0;
  uint64_t iterations = 0;
  uint64_t messages = 0;        // of the exchange, between processes
  uint64_t crossing_bytes = 0;  // of the exchange, between nodes
  uint64_t seeks = 0, revocations = 0;
  size_t most_at_a_target = 0;                    // aggregators, in one iteration
  std::set<std::pair<uint32_t, uint32_t>> pairs;  // processes and the aggregators they deal with
  bool verified = false;                          // every byte was moved exactly once

  double rate() const { return static_cast<double>(bytes) / seconds / 1e6; }  // MB/s
};

IbcsResult simulate(const IbcsModel& model, const IbcsLoad& load, Strategy strategy, bool write);

}  // namespace forebay::bench
