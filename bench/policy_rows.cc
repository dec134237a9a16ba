// auto-ext4: does `auto` find the better policy at every size? With the plots of the same sweep,
// and of one over the number of loop threads (paper 1, figures 12 and 13).
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "bench/forward_rows.h"
#include "bench/sweep.h"

namespace forebay::bench {

namespace {

const unsigned kThreads[] = {1, 2, 4, 16};

std::string state_below(const std::string& directory) {
  return file_system_of(directory) + ", in the page cache, overwritten in place or reread";
}

std::vector<Row> auto_ext4(Forward& forward) {
  const std::string scratch = forward.scratch + "/policies", directory = scratch + "/export";
  const Policies policies(scratch, directory);
  const Sweep measured =
      sweep(forward.options, directory, state_below(directory), policies.lines());
  plot(measured, "local", "Local file system", forward.report);
  forward.most_memory = std::max(forward.most_memory, policies.peak_memory());
  return auto_rows("auto-ext4", measured);
}

// No row: two pictures.
std::vector<Row> threads(Forward& forward) {
  const std::string scratch = forward.scratch + "/threads", directory = scratch + "/export";
  std::deque<Bed> beds;
  std::vector<Line> lines;
  for (const unsigned n : kThreads) {
    const std::string text = fmt::to_string(n);
    const Bed& bed = beds.emplace_back(
        scratch + "/" + text, "posix", Forward::kPool, true,
        std::vector<Override>{{"export.bench.path", directory}, {"server.workers", text}});
    lines.push_back({text + (n == 1 ? " thread" : " threads"), forwarded(bed)});
  }
  BenchOptions once = forward.options;
  once.rounds = std::min(once.rounds, 2);
  const Sweep measured = sweep(once, directory, state_below(directory), lines);
  if (!std::ranges::all_of(measured.cells, &Sweep::Cell::verified)) {
    throw std::runtime_error("data was wrong in the sweep over the number of threads");
  }
  plot(measured, "threads", "Loop threads of the server", forward.report);
  for (const Bed& bed : beds) forward.saw(bed);
  return {};
}

}  // namespace

void policy_rows(Forward& forward) {
  forward.add({"auto-ext4", "auto-ext4-worst"}, [&] { return auto_ext4(forward); });
  forward.add({"threads"}, [&] { return threads(forward); });
}

}  // namespace forebay::bench
