#include "core/extent_set.h"

#include <gtest/gtest.h>

#include "core/extents_oracle.h"
#include "core/testing.h"

namespace forebay {
namespace {

using ByteSet = std::set<int64_t>;

TEST(ExtentSet, NormaliseKeepsTheBytes) {
  Random random(test_seed());
  for (int i = 0; i < 8000; ++i) {
    const std::vector<Extent> list = random.list(12);
    const ExtentSet set = normalise(list);
    ASSERT_TRUE(is_normal(set));
    ASSERT_EQ(set_of(set), set_of(list));
    ASSERT_EQ(normalise(set), set);
  }
}

TEST(ExtentSet, NormalFormIsSortedDisjointAndJoined) {
  EXPECT_TRUE(is_normal(ExtentSet{}));
  EXPECT_TRUE(is_normal(ExtentSet{ext(0, 1), ext(2, 1)}));
  EXPECT_FALSE(is_normal(ExtentSet{ext(0, 1), ext(1, 1)}));
  EXPECT_FALSE(is_normal(ExtentSet{ext(2, 1), ext(0, 1)}));
  EXPECT_FALSE(is_normal(ExtentSet{ext(0, 5), ext(2, 1)}));
  EXPECT_FALSE(is_normal(ExtentSet{ext(0, 0)}));
}

TEST(ExtentSet, AlgebraMatchesTheBytes) {
  Random random(test_seed());
  for (int i = 0; i < 8000; ++i) {
    const ExtentSet a = normalise(random.list(12)), b = normalise(random.list(12));
    const ByteSet x = set_of(a), y = set_of(b);
    ByteSet both, only, all;
    std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::inserter(both, both.end()));
    std::set_difference(x.begin(), x.end(), y.begin(), y.end(), std::inserter(only, only.end()));
    std::set_union(x.begin(), x.end(), y.begin(), y.end(), std::inserter(all, all.end()));
    ASSERT_EQ(set_of(intersect(a, b)), both);
    ASSERT_EQ(set_of(subtract(a, b)), only);
    ASSERT_EQ(set_of(unite(a, b)), all);
    ASSERT_TRUE(is_normal(intersect(a, b)));
    ASSERT_TRUE(is_normal(subtract(a, b)));
    ASSERT_TRUE(is_normal(unite(a, b)));
  }
}

TEST(ExtentSetDeath, AsksForNormalForm) {
  const std::vector<Extent> wild = {ext(5, 5), ext(0, 7)};
  EXPECT_DEATH(intersect(wild, wild), "is_normal");
  EXPECT_DEATH(split_at(wild, Length(0)), "boundary");
}

TEST(ExtentSet, SplitsAtBoundaries) {
  Random random(test_seed());
  for (int i = 0; i < 10000; ++i) {
    const std::vector<Extent> list = random.list(6);
    const uint64_t boundary = 1 + random.below(40);
    const std::vector<Extent> cut = split_at(list, Length(boundary));
    ASSERT_EQ(bytes_of(Shape{cut, {}}), bytes_of(Shape{list, {}}));
    for (const Extent& e : cut) {
      ASSERT_FALSE(e.empty());
      ASSERT_EQ(e.offset.value / boundary, (e.end().value - 1) / boundary);
    }
    // No cut but where it must be: no more pieces than boundaries inside allow.
    size_t most = 0;
    for (const Extent& e : list) {
      if (!e.empty()) most += (e.end().value - 1) / boundary - e.offset.value / boundary + 1;
    }
    ASSERT_EQ(cut.size(), most);
  }
}

Extents random_extents(Random& random) {
  for (;;) {
    const Shape shape = random.shape();
    if (auto e = Extents::make(shape.blocks, shape.loops)) return *e;
  }
}

TEST(MayOverlap, IsExactWithinItsLimitAndNeverWronglyNo) {
  Random random(test_seed());
  int exact_no = 0;
  for (int i = 0; i < 8000; ++i) {
    const Extents a = random_extents(random), b = random_extents(random);
    const Bytes x = bytes_of(a), y = bytes_of(b);
    const ByteSet xs(x.begin(), x.end());
    const bool truth = std::any_of(y.begin(), y.end(), [&](int64_t k) { return xs.contains(k); });
    ASSERT_EQ(may_overlap(a, b), truth);
    for (const uint64_t limit : {0, 1, 3}) {
      ASSERT_TRUE(!truth || may_overlap(a, b, limit));
    }
    exact_no += !truth && a.bounds().overlaps(b.bounds());
  }
  EXPECT_GT(exact_no, 50) << "the cases do not test more than bounds";
}

TEST(MayOverlap, TellsInterleavedViewsOfManyRanksApart) {
  const auto rank_view = [](uint64_t rank, uint64_t first = 0) {
    return Extents::make({ext(first + rank * 4096, 4096)}, {{1'000'000'000, 8 * 4096}}).value();
  };
  EXPECT_FALSE(may_overlap(rank_view(0), rank_view(1)));
  EXPECT_FALSE(may_overlap(rank_view(7), rank_view(0, 8 * 4096)));
  EXPECT_TRUE(may_overlap(rank_view(3), rank_view(3)));
  EXPECT_TRUE(may_overlap(rank_view(3), rank_view(3, 1)));
  EXPECT_FALSE(may_overlap(rank_view(3), Extents(ext(8 * 4096, 3 * 4096))));
}

}  // namespace
}  // namespace forebay
