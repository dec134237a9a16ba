#include "bench/merge_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "bench/fleet.h"
#include "plan/schedule.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kLength = 4096;
constexpr size_t kClients = 64;

// Offsets in random order, every second block of the file: disjoint, and none touches another.
std::vector<uint64_t> offsets(size_t count, uint64_t seed) {
  std::vector<uint64_t> all(count);
  std::iota(all.begin(), all.end(), uint64_t{0});
  std::ranges::shuffle(all, std::mt19937_64(seed));
  for (uint64_t& one : all) one *= 2 * kLength;
  return all;
}

// Small numbers are repeated, so that the clock is not what is measured.
size_t repeats(size_t pending) {
  return std::max<size_t>(1, 20000 / pending);
}

struct Load {
  std::vector<uint64_t> at;
  std::vector<uint8_t> seen;

  // All in, then all out.
  bool pass(plan::Schedule& schedule, plan::Schedule::Batch& batch) {
    for (size_t i = 0; i < at.size(); ++i) {
      schedule.add({.id = i,
                    .queue = 0,
                    .write = true,
                    .client = i % kClients,
                    .bounds = {Offset(at[i]), Length(kLength)},
                    .bytes = kLength});
    }
    size_t out = 0;
    while (schedule.next(batch)) {
      for (const uint64_t id : batch.ids) ++seen[id];
      out += batch.ids.size();
      schedule.ended(batch.queue);
    }
    return out == at.size();
  }
};

}  // namespace

double merge_cost(plan::Merger::Kind kind, size_t pending, uint64_t seed, bool& verified) {
  Load load{offsets(pending, seed), std::vector<uint8_t>(pending)};
  const size_t times = repeats(pending);
  plan::Schedule schedule({.merger = kind});
  plan::Schedule::Batch batch;
  // Its own CPU time: nothing here waits, and another program on this core is not its cost.
  const double begin = cpu_seconds(getpid());
  for (size_t i = 0; i < times; ++i) {
    std::ranges::fill(load.seen, uint8_t{0});
    verified &= load.pass(schedule, batch);
  }
  const double took = cpu_seconds(getpid()) - begin;
  verified &= std::ranges::all_of(load.seen, [](uint8_t n) { return n == 1; });
  return took * 1e6 / static_cast<double>(times * pending);
}

MergeCosts measure_merging(unsigned rounds) {
  using Kind = plan::Merger::Kind;
  constexpr size_t kMostBrute = 10000;
  MergeCosts costs;
  for (const size_t pending : {10, 30, 100, 300, 1000, 10000, 100000, 1000000}) {
    std::vector<double> tree, brute;
    for (unsigned i = 0; i < rounds; ++i) {
      tree.push_back(merge_cost(Kind::tree, pending, i, costs.verified));
      if (pending > kMostBrute) continue;
      brute.push_back(merge_cost(Kind::brute, pending, i, costs.verified));
    }
    const double by_brute = brute.empty() ? 0 : median(brute);
    costs.lines.push_back({pending, median(tree), by_brute});
    if (by_brute > 0 && by_brute < costs.lines.back().tree_us) costs.crossover = 0;
    if (by_brute > costs.lines.back().tree_us && costs.crossover == 0) costs.crossover = pending;
  }
  return costs;
}

double MergeCosts::growth() const {
  const auto among = [&](size_t pending) {
    return std::ranges::find(lines, pending, &Line::pending)->tree_us;
  };
  return among(1000000) / among(1000);
}

namespace {

Json details_of(const MergeCosts& costs) {
  Json::Array lines;
  for (const MergeCosts::Line& line : costs.lines) {
    lines.push_back(Json::Object{{"pending", uint64_t(line.pending)},
                                 {"tree_us", line.tree_us},
                                 {"brute_us", line.brute_us > 0 ? Json(line.brute_us) : Json()}});
  }
  return Json::Object{{"costs", lines},
                      {"crossover", uint64_t(costs.crossover)},
                      {"growth_1k_to_1m", costs.growth()}};
}

}  // namespace

Row merge_1m(unsigned rounds) {
  constexpr double kFloor = 3;  // us
  const MergeCosts costs = measure_merging(rounds);
  Row row;
  row.id = "merge-1m";
  row.what =
      "insert, merge and issue one request with 1,000,000 pending at random disjoint offsets, CPU "
      "time";
  row.ours = costs.lines.back().tree_us;
  row.against = "3 us";
  row.theirs = kFloor;
  row.ratio = kFloor / row.ours;
  row.unit = "us";
  row.verified = costs.verified;
  row.at_least = 1;
  row.note = fmt::format(
      "the tree is cheaper than brute force from {} pending on; {:.1f} times dearer with 1,000,000 "
      "than with 1,000 (log n: 2.0)",
      costs.crossover, costs.growth());
  row.details = details_of(costs);
  return row;
}

}  // namespace forebay::bench
