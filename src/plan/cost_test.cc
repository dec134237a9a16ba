// What the plan of a collective call costs, counted in steps and not in time: from 8 to 4096 ranks
// it grows no faster than the pieces times the logarithm of the aggregators.
#include <gtest/gtest.h>

#include <cmath>

#include "core/testing.h"
#include "plan/realms.h"
#include "plan/windows.h"

namespace forebay::plan {
namespace {

constexpr uint64_t kPieces = 1 << 16, kPiece = 64;
constexpr WindowLimits kLimits{1_MiB, 65536};

enum class Shape { regular, irregular, apart };

// So many pieces of all ranks together. Regular and irregular ones alternate, without gaps or with;
// those of ranks that are apart lie side by side.
std::vector<ViewPart> parts_of(uint64_t ranks, Shape shape) {
  std::vector<ViewPart> parts;
  const uint64_t each = kPieces / ranks;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    TypeMap tile = *TypeMap::bytes(kPiece);
    uint64_t at = rank * kPiece;
    if (shape == Shape::regular) {
      tile = *TypeMap::resized(tile, 0, static_cast<int64_t>(ranks * kPiece));
    } else if (shape == Shape::apart) {
      tile = *TypeMap::resized(tile, 0, 2 * kPiece);
      at = rank * each * 2 * kPiece;
    } else {
      std::vector<TypeMap::Block> blocks;
      for (uint64_t i = 0; i < each; ++i) {
        const uint64_t place = 2 * (i * ranks + (rank + i * i) % ranks);
        blocks.push_back({static_cast<int64_t>(place * kPiece), static_cast<int64_t>(kPiece)});
      }
      tile = *TypeMap::indexed(blocks, *TypeMap::bytes(1));
      at = 0;
    }
    parts.push_back({*TiledMap::view(Offset(at), tile), Length(0), Length(each * kPiece)});
    parts.back().around = parts.back().bounds();
  }
  return parts;
}

struct Cost {
  uint64_t steps = 0, windows = 0;
};

// All aggregators' windows, and every rank's places in them.
Cost cost_of(const std::vector<ViewPart>& parts, const Realms& realms, const Striping& striping) {
  Cost cost;
  std::vector<uint64_t> loads;
  for (size_t a = 0; striping.known() && a < realms.size(); ++a)
    for (const uint64_t n : loads_by_target(parts, realms[a], striping, kLimits))
      loads.push_back(n);
  uint64_t placed = 0;
  for (size_t a = 0; a < realms.size(); ++a) {
    const auto windows = striping.known()
                             ? windows_by_target(parts, realms[a], striping, kLimits, a, loads)
                             : windows_by_offset(parts, realms[a], kLimits);
    for (; !windows->done(); ++cost.windows) {
      const auto runs = windows->next();
      const auto places = places_of(runs);
      for (const ViewPart& part : parts)
        cost.steps += place_in_window(PlacedRuns{runs, places}, part,
                                      [&](uint64_t, Length, uint64_t n) { placed += n; });
    }
    cost.steps += windows->steps();
  }
  EXPECT_EQ(placed, kPieces * kPiece);
  return cost;
}

void check_growth(Shape shape, size_t ranks_of_aggregator, const Striping& striping = {}) {
  double first = 0;
  for (const uint64_t ranks : {8, 64, 512, 4096}) {
    const auto parts = parts_of(ranks, shape);
    const size_t aggregators = std::max<size_t>(ranks / ranks_of_aggregator, 1);
    Extent region = parts.front().around;
    for (const ViewPart& part : parts)
      region.length = std::max(region.end(), part.around.end()) - region.offset;
    const Cost cost = cost_of(parts, even_realms(region, aggregators, 1), striping);
    // To place its bytes, and before the first window to find its first piece.
    const uint64_t looks = ranks * (cost.windows + aggregators);
    const double pieces = static_cast<double>(kPieces), steps = static_cast<double>(cost.steps);
    const double per_piece = std::max(0.0, steps - static_cast<double>(looks)) / pieces;
    std::printf("%5zu ranks: %.2f steps for a piece, %.2f without looks at ranks\n",
                static_cast<size_t>(ranks), steps / pieces, per_piece);
    if (first == 0) first = per_piece;
    EXPECT_LE(per_piece, first * (1 + std::log2(static_cast<double>(aggregators))));
  }
}

TEST(PlanCost, RegularPiecesThatAlternate) {
  check_growth(Shape::regular, 8);
}

TEST(PlanCost, IrregularPiecesThatAlternate) {
  check_growth(Shape::irregular, 8);
}

TEST(PlanCost, RanksSideBySide) {
  check_growth(Shape::apart, 8);
}

TEST(PlanCost, ByTarget) {
  check_growth(Shape::regular, 32, {64_KiB, 4});
}

}  // namespace
}  // namespace forebay::plan
