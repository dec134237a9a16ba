#include "plan/merger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/testing.h"

namespace forebay::plan {
namespace {

Item item(uint64_t offset, uint64_t length, uint32_t slot, uint32_t pieces = 1) {
  return {Offset(offset), Offset(offset + length), length, slot, pieces};
}

std::vector<uint32_t> slots(const std::vector<Item>& items) {
  std::vector<uint32_t> out;
  for (const Item& i : items) out.push_back(i.slot);
  return out;
}

class Mergers : public ::testing::TestWithParam<Merger::Kind> {
 protected:
  std::vector<uint32_t> take(uint64_t from, RunLimits limits = {}) {
    merger_->take(Offset(from), limits, out_);
    return slots(out_);
  }
  const std::unique_ptr<Merger> merger_ = Merger::make(GetParam());
  std::vector<Item> out_;
};

using Slots = std::vector<uint32_t>;

TEST_P(Mergers, TakesARunOfNeighboursInOrder) {
  for (const uint32_t n : {3u, 1u, 0u, 2u, 7u}) merger_->insert(item(n * 10, 10, n));
  EXPECT_EQ(take(0), (Slots{0, 1, 2, 3}));
  EXPECT_EQ(take(0), (Slots{7}));
  EXPECT_TRUE(merger_->empty());
}

TEST_P(Mergers, GoesUpwardAndThenFromTheLowest) {
  for (const uint32_t n : {0u, 2u, 4u}) merger_->insert(item(n * 10, 10, n));
  EXPECT_EQ(take(15), (Slots{2}));
  EXPECT_EQ(take(50), (Slots{0}));
  EXPECT_EQ(take(50), (Slots{4}));
}

TEST_P(Mergers, LateNeighboursJoin) {
  merger_->insert(item(0, 10, 0));
  merger_->insert(item(20, 10, 1));
  merger_->insert(item(10, 10, 2));
  EXPECT_EQ(take(0), (Slots{0, 2, 1}));
}

TEST_P(Mergers, OverlapsAreTouches) {
  merger_->insert(item(0, 100, 0));
  merger_->insert(item(10, 5, 1));
  merger_->insert(item(50, 100, 2));
  merger_->insert(item(151, 1, 3));
  EXPECT_EQ(take(0), (Slots{0, 1, 2}));
}

TEST_P(Mergers, KeepsToTheLimits) {
  for (uint32_t n = 0; n < 10; ++n) merger_->insert(item(n * 10, 10, n, 2));
  EXPECT_EQ(take(0, {.bytes = 35}).size(), 3u);
  EXPECT_EQ(take(0, {.pieces = 5}).size(), 2u);
  EXPECT_EQ(take(0, {.requests = 1}).size(), 1u);
  EXPECT_EQ(take(0, {.bytes = 1, .pieces = 1}).size(), 1u) << "one that is too large goes alone";
  EXPECT_EQ(merger_->size(), 3u);
}

TEST_P(Mergers, SomeGoAlone) {
  merger_->insert(item(0, 10, 0));
  merger_->insert(item(10, 10, 1, 0));
  merger_->insert(item(20, 10, 2));
  EXPECT_EQ(take(0), (Slots{0}));
  EXPECT_EQ(take(0), (Slots{1}));
  EXPECT_EQ(take(0), (Slots{2}));
}

TEST_P(Mergers, TakesWhatLeadsUpToOne) {
  for (uint32_t n = 0; n < 6; ++n) merger_->insert(item(n * 10 + (n > 3), 10, n));
  merger_->take_around({Offset(20), 2}, {}, out_);
  EXPECT_EQ(slots(out_), (Slots{0, 1, 2, 3}));
  merger_->take_around({Offset(51), 5}, {.bytes = 10}, out_);
  EXPECT_EQ(slots(out_), (Slots{5})) << "the one that is asked for is in it, whatever the limits";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Mergers, ::testing::Values(Merger::Kind::tree, Merger::Kind::brute),
                         [](const auto& i) {
                           return i.param == Merger::Kind::tree ? "tree" : "brute";
                         });

RunLimits random_limits(std::mt19937_64& random) {
  RunLimits limits;
  if (random() % 2) limits.bytes = 1 + random() % 60;
  if (random() % 3 == 0) limits.requests = 1 + random() % 6;
  if (random() % 3 == 0) limits.pieces = 1 + random() % 9;
  return limits;
}

// The same calls to both: the same runs. What a run is, is checked by itself.
TEST(Merger, TheTreeTakesWhatBruteForceTakes) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 60; ++round) {
    const auto tree = Merger::make(Merger::Kind::tree), brute = Merger::make(Merger::Kind::brute);
    std::vector<Item> pending, a, b;
    uint32_t next = 0;
    const uint64_t span = 20 + random() % 3000;
    const bool growing = random() % 2;
    for (int i = 0; i < 600; ++i) {
      if (pending.empty() || random() % 5 < (growing && i < 400 ? 4 : 2)) {
        const Item one = item(random() % span, 1 + random() % 12, next++, random() % 20 ? 1 : 0);
        tree->insert(one), brute->insert(one), pending.push_back(one);
        continue;
      }
      const RunLimits limits = random_limits(random);
      if (random() % 3 == 0) {
        const Item one = pending[random() % pending.size()];
        const Merger::Which which{one.offset, one.slot};
        tree->take_around(which, limits, a), brute->take_around(which, limits, b);
        ASSERT_EQ(std::ranges::count(slots(a), one.slot), 1);
      } else {
        const Offset from(random() % span);
        tree->take(from, limits, a), brute->take(from, limits, b);
      }
      ASSERT_EQ(slots(a), slots(b));
      plan::Run run(limits);
      for (const Item& one : a) {
        ASSERT_TRUE(run.take(one));
        ASSERT_EQ(std::erase_if(pending, [&](const Item& p) { return p.slot == one.slot; }), 1u);
      }
      ASSERT_EQ(tree->size(), pending.size());
    }
  }
}

}  // namespace
}  // namespace forebay::plan
