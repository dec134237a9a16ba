#include "plan/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/testing.h"

namespace forebay::plan {
namespace {

using Table = std::vector<std::vector<uint64_t>>;  // items of each aggregator, by target

constexpr uint64_t kCollectiveBuffer = 4 << 20;

OrderInput input_of(const Table& table, uint64_t unit = kCollectiveBuffer) {
  OrderInput in{.aggregators = table.size(),
                .targets = table[0].size(),
                .bytes = {},
                .buffer = kCollectiveBuffer};
  for (const auto& row : table) {
    for (const uint64_t n : row) in.bytes.push_back(n * unit);
  }
  return in;
}

// What rule 1 of the header allows at a time.
size_t driven(const OrderInput& in) {
  std::vector<bool> a(in.aggregators), t(in.targets);
  for (size_t i = 0; i < in.bytes.size(); ++i) {
    if (in.bytes[i] > 0) a[i / in.targets] = t[i % in.targets] = true;
  }
  const auto active = std::ranges::count(a, true), used = std::ranges::count(t, true);
  if (active == 0) return 1;
  return std::min<size_t>(std::max<uint64_t>(1, in.buffer / in.stripe),
                          static_cast<size_t>((used + active - 1) / active));
}

struct Seen {
  std::vector<uint64_t> bytes;        // by aggregator and target, as in the input
  std::vector<uint64_t> items;        // the same
  std::vector<uint64_t> least, most;  // items of an aggregator in one iteration
};

// Checks an order against the rules of the header that hold item by item.
Seen check(const OrderInput& in, const Iterations& order) {
  const size_t several = driven(in);
  const auto most =
      in.buffer + static_cast<uint64_t>(in.threshold * static_cast<double>(in.buffer));
  Seen seen{std::vector<uint64_t>(in.bytes.size()), std::vector<uint64_t>(in.bytes.size()),
            std::vector<uint64_t>(in.aggregators, UINT64_MAX),
            std::vector<uint64_t>(in.aggregators)};
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<bool> served(in.targets);
    for (size_t a = 0; a < in.aggregators; ++a) {
      const auto items = order[i][a];
      uint64_t together = 0;
      for (const OrderItem& item : items) {
        EXPECT_FALSE(served[item.target]) << "target " << item.target << " twice in " << i;
        EXPECT_GT(item.bytes, 0u);
        served[item.target] = true;
        together += item.bytes;
        seen.bytes[a * in.targets + item.target] += item.bytes;
        ++seen.items[a * in.targets + item.target];
      }
      EXPECT_LE(items.size(), several);
      EXPECT_LE(together, most);
      seen.least[a] = std::min<uint64_t>(seen.least[a], items.size());
      seen.most[a] = std::max<uint64_t>(seen.most[a], items.size());
    }
  }
  EXPECT_EQ(seen.bytes, in.bytes) << "every byte once";
  return seen;
}

uint64_t bound(const OrderInput& in, const Seen& seen) {
  std::vector<uint64_t> rows(in.aggregators), columns(in.targets);
  for (size_t i = 0; i < seen.items.size(); ++i) {
    rows[i / in.targets] += seen.items[i], columns[i % in.targets] += seen.items[i];
  }
  const size_t several = driven(in);
  return std::max(std::ranges::max(columns), (std::ranges::max(rows) + several - 1) / several);
}

Seen check_best(const OrderInput& in) {
  const Iterations order = order_by_target(in);
  Seen seen = check(in, order);
  EXPECT_EQ(order.size(), bound(in, seen));
  return seen;
}

// Table I of the paper.
TEST(Order, TheBalancedCaseTakesWhatEachAggregatorNeedsAnyway) {
  const auto in = input_of({{3, 2, 2}, {2, 3, 2}, {2, 2, 3}});
  const Iterations order = order_by_target(in);
  check(in, order);
  ASSERT_EQ(order.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    for (size_t a = 0; a < 3; ++a) {
      ASSERT_EQ(order[i][a].size(), 1u) << "nobody is idle";
      EXPECT_EQ(order[i][a][0].bytes, kCollectiveBuffer);
    }
  }
}

// And the schedule that the paper gives for its first two iterations: groups of two, whole.
TEST(Order, TheSmallestGroupsGoFirst) {
  const auto order = order_by_target(input_of({{3, 2, 2}, {2, 3, 2}, {2, 2, 3}}));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(order[i][0][0].target, 1u);
    EXPECT_EQ(order[i][1][0].target, 2u);
    EXPECT_EQ(order[i][2][0].target, 0u);
  }
}

TEST(Order, NothingComesOfNothing) {
  EXPECT_TRUE(order_by_target({.aggregators = 0, .targets = 4, .bytes = {}, .buffer = 1}).empty());
  EXPECT_TRUE(order_by_target({.aggregators = 4, .targets = 0, .bytes = {}, .buffer = 1}).empty());
  EXPECT_TRUE(order_by_target(input_of({{0, 0}, {0, 0}})).empty());
}

TEST(Order, ASmallRemainderExtendsTheLastItemAndALargeOneIsItsOwn) {
  OrderInput in{.aggregators = 1, .targets = 1, .bytes = {2125}, .buffer = 1000};
  auto order = order_by_target(in);
  ASSERT_EQ(order.size(), 2u);
  EXPECT_EQ(order[0][0][0].bytes, 1000u);
  EXPECT_EQ(order[1][0][0].bytes, 1125u);
  in.bytes = {2250}, order = order_by_target(in);
  EXPECT_EQ(order.size(), 2u) << "not above the threshold";
  in.bytes = {2251}, order = order_by_target(in);
  ASSERT_EQ(order.size(), 3u);
  EXPECT_EQ(order[2][0][0].bytes, 251u);
  in.threshold = 0, in.bytes = {2001}, order = order_by_target(in);
  EXPECT_EQ(order.size(), 3u);
  in.threshold = 0.25, in.bytes = {7}, order = order_by_target(in);
  ASSERT_EQ(order.size(), 1u) << "less than the threshold, but there is no item to extend";
  EXPECT_EQ(order[0][0][0].bytes, 7u);
}

TEST(Order, WithFewerTargetsThatManyAggregatorsAreActive) {
  const auto in = input_of(Table(6, {3, 3}));
  const Iterations order = order_by_target(in);
  check(in, order);
  ASSERT_EQ(order.size(), 18u);
  for (size_t i = 0; i < order.size(); ++i) {
    size_t active = 0;
    for (size_t a = 0; a < 6; ++a) active += order[i][a].size();
    EXPECT_EQ(active, 2u);
  }
}

TEST(Order, WithMoreTargetsAnAggregatorDividesItsBufferAmongSeveral) {
  const auto in = input_of(Table(2, {1, 1, 1, 1, 1, 1}));
  const Iterations order = order_by_target(in);
  const Seen seen = check(in, order);
  EXPECT_EQ(order.size(), 6u) << "three items in a group, the pages that remain in the last";
  EXPECT_EQ(seen.least, (std::vector<uint64_t>{3, 3})) << "as even as can be";
  EXPECT_EQ(seen.most, (std::vector<uint64_t>{3, 3}));
}

TEST(Order, SeveralTargetsAreSharedOutEvenly) {
  const auto in = input_of(Table(4, {2, 2, 2, 2, 2, 2}));  // 1.5 each
  const Seen seen = check_best(in);
  EXPECT_EQ(seen.least, std::vector<uint64_t>(4, 1));
  EXPECT_EQ(seen.most, std::vector<uint64_t>(4, 2));
}

TEST(Order, AnAggregatorStaysWithATargetAsLongAsItCan) {
  const auto in = input_of({{1000, 1000}, {1000, 1000}});
  const Iterations order = order_by_target(in);
  ASSERT_EQ(order.size(), 2000u);
  size_t changes = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    changes += order[i][0][0].target != order[i - 1][0][0].target;
  }
  EXPECT_EQ(changes, 1u);
}

// A sum of random permutations: all rows and columns have the same sum.
TEST(Order, BalancedTablesNeedNoExtraIterations) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 100; ++round) {
    const size_t n = 1 + random() % 40, times = 1 + random() % 60;
    Table table(n, std::vector<uint64_t>(n));
    std::vector<size_t> permutation(n);
    std::iota(permutation.begin(), permutation.end(), size_t{0});
    for (size_t i = 0; i < times; ++i) {
      std::ranges::shuffle(permutation, random);
      for (size_t a = 0; a < n; ++a) ++table[a][permutation[a]];
    }
    const auto in = input_of(table);
    const Iterations order = order_by_target(in);
    check(in, order);
    EXPECT_EQ(order.size(), times);
  }
}

TEST(Order, AnyTableTakesTheFewestIterationsPossible) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 400; ++round) {
    OrderInput in{.aggregators = 1 + random() % 40,
                  .targets = 1 + random() % 40,
                  .bytes = {},
                  .buffer = 1 + random() % (round % 4 == 0 ? 40 : 20000),
                  .stripe = round % 3 == 0 ? 1 : 1 + random() % 5000,
                  .threshold = double(random() % 100) / 100};
    const uint64_t holes = random() % 100, most = 1 + random() % (in.buffer * 8);
    for (size_t i = 0; i < in.aggregators * in.targets; ++i) {
      in.bytes.push_back(random() % 100 < holes ? 0 : random() % most);
    }
    check_best(in);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// Even realms of a contiguous access, striped: each realm meets a run of targets.
OrderInput striped(size_t aggregators, size_t targets, uint64_t stripes_each) {
  OrderInput in{.aggregators = aggregators,
                .targets = targets,
                .bytes = std::vector<uint64_t>(aggregators * targets),
                .buffer = kCollectiveBuffer};
  for (uint64_t s = 0; s < aggregators * stripes_each; ++s) {
    in.bytes[s / stripes_each * targets + s % targets] += 1 << 20;
  }
  return in;
}

// With far more targets than stripes in the buffer: as many as there are stripes, one of each.
TEST(Order, WideStripingCutsNoStripes) {
  for (const size_t targets : {64, 512}) {
    OrderInput in = striped(2, targets, 2048);
    in.buffer = (8 << 20) + 12345;
    in.stripe = 1 << 20;
    const Iterations order = order_by_target(in);
    EXPECT_EQ(order.size(), 256u) << "a buffer-full in each, as by offset";
    for (size_t i = 0; i < order.size(); ++i)
      for (size_t a = 0; a < 2; ++a) {
        ASSERT_EQ(order[i][a].size(), 8u);
        for (const OrderItem& item : order[i][a]) ASSERT_EQ(item.bytes, in.stripe);
      }
    check_best(in);
  }
}

TEST(Order, LargeSystemsArePlannedToo) {
  check_best(striped(4096, 512, 100));
  check_best(striped(4096, 512, 512));  // every aggregator with every target: two million items
  check_best(striped(512, 512, 10000));
  check_best(striped(64, 512, 3000));
}

}  // namespace
}  // namespace forebay::plan
