// What the plan of a collective call costs by piece: all aggregators' windows together, of ranks
// whose pieces alternate. It should grow by no more than the pieces times the logarithm of the
// aggregators (paper 5, section 4.2.3, whose clients walk all of their pieces for each of them).
#include <benchmark/benchmark.h>

#include "plan/realms.h"
#include "plan/windows.h"

namespace forebay::plan {
namespace {

constexpr uint64_t kPiece = 64;
constexpr WindowLimits kLimits{8_MiB, 65536};

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
  }
  return parts;
}

void plan_call(benchmark::State& state, bool regular) {
  const auto ranks = static_cast<uint64_t>(state.range(0));
  const auto pieces = static_cast<uint64_t>(state.range(1));
  const auto parts = parts_of(ranks, pieces, regular);
  const size_t aggregators = std::max<size_t>(ranks / 8, 1);
  uint64_t end = 0;
  for (const ViewPart& part : parts) end = std::max(end, part.bounds().end().value);
  for (auto _ : state) {
    const Realms realms = even_realms({Offset(0), Length(end)}, aggregators, 1);
    for (const TiledMap& realm : realms)
      for (auto windows = windows_by_offset(parts, realm, kLimits); !windows->done();)
        benchmark::DoNotOptimize(windows->next());
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

BENCHMARK_CAPTURE(plan_call, regular, true)->Apply(by_ranks_and_pieces);
BENCHMARK_CAPTURE(plan_call, irregular, false)->Apply(by_ranks_and_pieces);

}  // namespace
}  // namespace forebay::plan

BENCHMARK_MAIN();
