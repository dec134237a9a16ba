#include "bench/forward.h"

#include <algorithm>

#include "bench/direct_row.h"
#include "bench/forward_rows.h"
#include "bench/merge_bench.h"

namespace forebay::bench {

bool Forward::wants(const std::vector<std::string>& ids) const {
  return std::ranges::any_of(ids, [&](const std::string& id) { return wanted(options, id); });
}

void Forward::leave_out(const std::vector<std::string>& ids, const std::string& why) {
  std::string names;
  for (const std::string& id : ids) {
    if (wanted(options, id)) names += (names.empty() ? "" : ", ") + id;
  }
  if (!names.empty()) report.left_out.push_back(names + ": " + why);
}

void memory_row(Forward& forward) {
  if (!forward.wants({"memory"}) || forward.most_memory == 0) return;
  Row row;
  row.id = "memory";
  row.what = "the most anonymous memory that a server had resident in any of the above";
  row.against = "the configured pool and 64 MiB";
  row.ours = forward.most_memory / 1e6;
  row.theirs = static_cast<double>(Forward::kPool + 64_MiB) / 1e6;
  row.ratio = row.theirs / row.ours;
  row.unit = "MB";
  row.verified = true;
  row.at_least = 1;
  forward.report.rows.push_back(row);
}

namespace {

void run_rows(const BenchOptions& options, const std::string& scratch, Report& report) {
  Forward forward{options, scratch, report};
  stream_rows(forward);
  add_direct_row(options, scratch, report);
  small_rows(forward);
  sieve_rows(forward);
  gluster_rows(forward);
  policy_rows(forward);
  forward.add({"merge-1m"}, [&] {
    const auto rounds = static_cast<unsigned>(std::min(options.rounds, 3));
    return std::vector<Row>{merge_1m(rounds)};
  });
  scale_rows(forward);
  memory_row(forward);
}

}  // namespace

Result<void> run_bench_forward(const BenchOptions& options) {
  return run_suite("forward", options, run_rows);
}

}  // namespace forebay::bench
