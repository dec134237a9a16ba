#include "plan/told_views.h"

#include <gtest/gtest.h>

#include "core/testing.h"
#include "plan/typemap_oracle.h"

namespace forebay::plan {
namespace {

// So many pieces at irregular places: two numbers for each.
TiledMap irregular(int64_t pieces, uint64_t seed) {
  std::vector<TypeMap::Block> blocks;
  for (int64_t i = 0; i < pieces; ++i)
    blocks.push_back({10 * i + static_cast<int64_t>((i * i + 1) * seed % 7), 2});
  return *TiledMap::view(Offset(seed), *TypeMap::indexed(blocks, *TypeMap::bytes(1)));
}

// The place of byte n of a view, less its displacement.
int64_t tiled(const OracleType& type, size_t n) {
  const auto tile = static_cast<int64_t>(n / type.bytes.size());
  return type.bytes[n % type.bytes.size()] + tile * type.map.extent();
}

TEST(TiledMap, AreTheSameByTheirNodes) {
  EXPECT_TRUE(irregular(100, 1).same(irregular(100, 1)));
  EXPECT_FALSE(irregular(100, 1).same(irregular(100, 2)));
  EXPECT_FALSE(irregular(100, 1).same(irregular(101, 1)));
  EXPECT_TRUE(TiledMap().same(TiledMap()));
  EXPECT_FALSE(TiledMap().same(irregular(3, 1)));
  TypeOracle oracle(test_seed());
  for (int i = 0; i < 300; ++i) {
    const OracleType a = oracle.make(3, true), b = oracle.make(3, true);
    const TiledMap x = *TiledMap::view(Offset(5), a.map), y = *TiledMap::view(Offset(5), b.map);
    EXPECT_TRUE(x.same(*TiledMap::view(Offset(5), a.map)));
    EXPECT_FALSE(x.same(*TiledMap::view(Offset(6), a.map)));
    for (size_t n = 0; x.same(y) && n < 2 * (a.bytes.size() + b.bytes.size()); ++n)
      ASSERT_EQ(tiled(a, n), tiled(b, n));
  }
}

TEST(TiledMap, TypesThatUseEachOtherTwiceAreComparedOnce) {
  const auto make = [] {
    auto type = TypeMap::indexed(std::vector<TypeMap::Block>{{0, 1}, {3, 2}}, *TypeMap::bytes(1));
    for (int level = 0; level < 40; ++level) {
      const std::vector<TypeMap::Member> twice = {{0, 1, *type}, {type->extent() + 1, 1, *type}};
      type = TypeMap::structure(twice);
    }
    return *TiledMap::once(Offset(0), *type);
  };
  EXPECT_TRUE(make().same(make()));
}

// An aggregator, as the rank tells it to be.
struct Aggregator {
  std::array<std::optional<TiledMap>, ToldViews::kSlots> slots;

  void hear(const ToldViews& told, const std::optional<TiledMap>& whole) {
    for (size_t i = 0; i < slots.size(); ++i)
      if (told.let_go() >> i & 1) slots[i].reset();
    if (whole) slots[told.slot()] = whole;
  }
  uint64_t numbers() const {
    uint64_t all = 0;
    for (const auto& one : slots) {
      std::vector<int64_t> numbers;
      if (one) one->encode(numbers), all += numbers.size();
    }
    return all;
  }
};

// What the rank takes for known is there, whatever calls were made and whatever failed; and no more
// is there than may be.
TEST(ToldViews, TheAggregatorsHaveWhatTheRankNames) {
  const uint64_t seed = test_seed();
  TypeOracle oracle(seed);
  constexpr uint64_t kMost = 30'000;
  std::vector<TiledMap> views;
  for (uint64_t i = 0; i < 14; ++i)
    views.push_back(irregular(i % 3 == 0 ? 10 : static_cast<int64_t>(2000 + 400 * i), i + 1));
  ToldViews told(kMost);
  Aggregator aggregator;
  uint64_t known_calls = 0;
  for (int call = 0; call < 3000; ++call) {
    if (oracle.pick(0, 200) == 0) {
      aggregator = {};
      told.forget();
    }
    const auto near = static_cast<size_t>(oracle.pick(0, 2));
    const TiledMap& view = views[(static_cast<size_t>(call) / 50 + near) % views.size()];
    if (told.use(view)) {
      ++known_calls;
      ASSERT_TRUE(aggregator.slots[told.slot()].has_value());
      ASSERT_TRUE(aggregator.slots[told.slot()]->same(view));
    } else if (oracle.pick(0, 3) > 0) {  // else the ranks move their data by themselves
      std::vector<int64_t> numbers;
      const bool whole = told.describe(numbers);
      const bool fails = oracle.pick(0, 9) == 0;
      if (fails && oracle.pick(0, 1)) continue;  // before anybody has heard of it
      aggregator.hear(told, whole ? std::optional(view) : std::nullopt);
      if (fails) continue;
      whole ? told.told_whole() : told.told_part();
      ASSERT_LE(aggregator.numbers(), kMost);
    }
  }
  EXPECT_GT(known_calls, 1500u);
}

TEST(ToldViews, ALongOneIsToldWhenItComesAgain) {
  ToldViews told(1 << 20);
  const TiledMap view = irregular(5000, 1), too_long = irregular(1 << 20, 3);
  std::vector<int64_t> numbers;
  EXPECT_FALSE(told.use(view));
  EXPECT_FALSE(told.describe(numbers));
  EXPECT_TRUE(numbers.empty());
  told.told_part();
  EXPECT_FALSE(told.use(irregular(5000, 1)));
  EXPECT_TRUE(told.describe(numbers));
  EXPECT_GT(numbers.size(), 10'000u);
  told.told_whole();
  EXPECT_TRUE(told.use(view));
  numbers.clear();
  for (int call = 0; call < 3; ++call) {
    EXPECT_FALSE(told.use(too_long));
    EXPECT_FALSE(told.describe(numbers));
    told.told_part();
  }
  EXPECT_TRUE(told.use(view)) << "still";
}

}  // namespace
}  // namespace forebay::plan
