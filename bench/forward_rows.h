// The families of rows of `forebay bench forward`, one file each with a table of its rows, and what
// they are given.
#pragma once

#include <string>
#include <vector>

#include "bench/bed.h"
#include "bench/measure.h"
#include "core/types.h"

namespace forebay::bench {

struct Forward {
  static constexpr uint64_t kPool = 64_MiB;  // of every server here

  const BenchOptions& options;
  const std::string scratch;
  Report& report;
  double most_memory = 0;  // of any server

  bool wants(const std::vector<std::string>& ids) const;
  void add(const std::vector<std::string>& ids, const std::function<std::vector<Row>()>& measured) {
    add_rows(options, report, ids, measured);
  }
  void leave_out(const std::vector<std::string>& ids, const std::string& why);
  void saw(const Bed& bed) { most_memory = std::max(most_memory, bed.peak_memory()); }
};

void stream_rows(Forward& forward);   // 8 MiB requests to files of the clients' own
void small_rows(Forward& forward);    // 4 KiB requests to one shared file
void sieve_rows(Forward& forward);    // scattered reads of one file
void scale_rows(Forward& forward);    // up to 256 clients
void policy_rows(Forward& forward);   // auto against fifo and hbrr over all sizes, and the plots
void gluster_rows(Forward& forward);  // small requests, and auto, on a GlusterFS volume
void memory_row(Forward& forward);    // the most that a server used in all of these

}  // namespace forebay::bench
