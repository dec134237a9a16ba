// What the plan of a collective call costs by piece: all aggregators' windows together, of ranks
// whose pieces alternate, by offset or by target; and where each rank's bytes lie in them. It
// should grow by no more than the pieces times the logarithm of the aggregators (paper 5,
// section 4.2.3, whose clients walk all of their pieces for each of them).
#include <benchmark/benchmark.h>

#include "plan/realms.h"
#include "plan/windows.h"

namespace forebay::plan {
namespace {

constexpr uint64_t kPiece = 64;
constexpr WindowLimits kLimits{8_MiB, 65536};
constexpr Striping kStriping{1_MiB, 16};

// Regular: loops, whatever the number of pieces. Irregular: a list of each piece.
std::vector<ViewPart> parts_of(uint64_t ranks, uint64_t pieces, bool regular) {
  std::vector<ViewPart> parts;
  const uint64_t each = std::max<uint64_t>(pieces / ranks, 1);
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    TypeMap tile = *TypeMap::bytes(kPiece);
    if (regular) {
      tile = *TypeMap::resized(tile, 0, static_cast<int64_t>(ranks * kPiece));
    } else {
      std::vector<TypeMap::Block> blocks;
      for (uint64_t i = 0; i < each; ++i)
        blocks.push_back({static_cast<int64_t>((i * ranks + (rank + i * i) % ranks) * kPiece),
                          static_cast<int64_t>(kPiece)});
      tile = *TypeMap::indexed(blocks, *TypeMap::bytes(1));
    }
    const uint64_t at = regular ? rank * kPiece : 0;
    parts.push_back({*TiledMap::view(Offset(at), tile), Length(0), Length(each * kPiece)});
    parts.back().around = parts.back().bounds();  // as ranks tell it
  }
  return parts;
}

enum class What {
  windows,    // by offset
  by_target,  // the loads, the order and the windows
  placement   // by offset, and the places of every rank's bytes in each window
};

uint64_t plan_aggregator(const std::vector<ViewPart>& parts, const Realms& realms, size_t a,
                         What what, const std::vector<uint64_t>& loads) {
  uint64_t placed = 0;
  const auto windows = what == What::by_target
                           ? windows_by_target(parts, realms[a], kStriping, kLimits, a, loads)
                           : windows_by_offset(parts, realms[a], kLimits);
  while (!windows->done()) {
    const auto runs = windows->next();
    benchmark::DoNotOptimize(runs.data());
    if (what != What::placement) continue;
    const auto places = places_of(runs);
    for (const ViewPart& part : parts)
      place_in_window(PlacedRuns{runs, places}, part,
                      [&](uint64_t, Length, uint64_t length) { placed += length; });
  }
  return placed;
}

void plan_call(benchmark::State& state, bool regular, What what) {
  const auto ranks = static_cast<uint64_t>(state.range(0));
  const auto pieces = static_cast<uint64_t>(state.range(1));
  const auto parts = parts_of(ranks, pieces, regular);
  const size_t aggregators = std::max<size_t>(ranks / 8, 1);
  uint64_t end = 0;
  for (const ViewPart& part : parts) end = std::max(end, part.around.end().value);
  for (auto _ : state) {
    const Realms realms = even_realms({Offset(0), Length(end)}, aggregators, 1);
    std::vector<uint64_t> loads;
    for (size_t a = 0; what == What::by_target && a < aggregators; ++a)
      for (const uint64_t n : loads_by_target(parts, realms[a], kStriping, kLimits))
        loads.push_back(n);
    for (size_t a = 0; a < aggregators; ++a)
      benchmark::DoNotOptimize(plan_aggregator(parts, realms, a, what, loads));
  }
  state.counters["ns_per_piece"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(pieces),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void by_ranks_and_pieces(benchmark::internal::Benchmark* bench) {
  for (const int64_t ranks : {8, 64, 512, 4096})
    for (const int64_t pieces : {1'000, 100'000, 10'000'000})
      if (pieces >= ranks) bench->Args({ranks, pieces});
  bench->Unit(benchmark::kMillisecond);
}

void by_ranks(benchmark::internal::Benchmark* bench) {
  for (const int64_t ranks : {8, 64, 512, 4096}) bench->Args({ranks, 1'000'000});
  bench->Unit(benchmark::kMillisecond)->Iterations(1);
}

BENCHMARK_CAPTURE(plan_call, regular, true, What::windows)->Apply(by_ranks_and_pieces);
BENCHMARK_CAPTURE(plan_call, irregular, false, What::windows)->Apply(by_ranks_and_pieces);
BENCHMARK_CAPTURE(plan_call, regular_by_target, true, What::by_target)->Apply(by_ranks);
BENCHMARK_CAPTURE(plan_call, regular_placement, true, What::placement)->Apply(by_ranks);
BENCHMARK_CAPTURE(plan_call, irregular_placement, false, What::placement)->Apply(by_ranks);

}  // namespace
}  // namespace forebay::plan

BENCHMARK_MAIN();
