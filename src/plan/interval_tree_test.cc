#include "plan/interval_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "core/testing.h"

namespace forebay::plan {
namespace {

using Ranges = std::multimap<uint64_t, Extent>;  // by id

void compare(const IntervalTree& tree, const Ranges& model, Extent range) {
  std::vector<std::pair<uint64_t, uint64_t>> found, expected;
  uint64_t last = 0;
  tree.visit(range, [&](Extent e, uint64_t id) {
    EXPECT_LE(last, e.offset.value) << "by rising offset";
    last = e.offset.value;
    found.emplace_back(e.offset.value, id);
  });
  for (const auto& [id, e] : model) {
    if (!range.empty() && e.overlaps(range)) expected.emplace_back(e.offset.value, id);
  }
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  ASSERT_EQ(found, expected);
}

TEST(IntervalTree, FindsWhatBruteForceFinds) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 50; ++round) {
    IntervalTree tree;
    Ranges model;
    uint64_t next = 0;
    for (int i = 0; i < 400; ++i) {
      if (model.empty() || random() % 5 < 3) {
        const Extent e = ext(random() % 200, 1 + random() % 30);
        tree.insert(e, next);
        model.emplace(next++, e);
      } else {
        auto victim = std::next(model.begin(), static_cast<ptrdiff_t>(random() % model.size()));
        tree.erase(victim->second, victim->first);
        model.erase(victim);
      }
      ASSERT_EQ(tree.size(), model.size());
      compare(tree, model, ext(random() % 230, random() % 40));
    }
  }
}

TEST(IntervalTree, LooksAtFewNodesWhateverTheOrderOfInsertion) {
  IntervalTree tree;
  const uint64_t n = 100000;
  for (uint64_t i = 0; i < n; ++i) tree.insert(ext(i * 10, 10), i);
  size_t most = 0;
  for (uint64_t i = 0; i < n; i += 97) {
    size_t found = 0;
    most = std::max(most, tree.visit(ext(i * 10 + 3, 4), [&](Extent, uint64_t id) {
      EXPECT_EQ(id, i);
      ++found;
    }));
    ASSERT_EQ(found, 1u);
  }
  EXPECT_LT(most, 100u);  // log2(n) is 17; a treap's depth is some 2.5 times that
}

TEST(IntervalTree, MovesAsAValue) {
  IntervalTree a;
  a.insert(ext(0, 5), 1);
  IntervalTree b = std::move(a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(b.size(), 1u);
  b.erase(ext(0, 5), 1);
  EXPECT_TRUE(b.empty());
}

TEST(IntervalTreeDeath, AsksForWhatIsThere) {
  IntervalTree tree;
  tree.insert(ext(0, 5), 1);
  EXPECT_DEATH(tree.erase(ext(0, 5), 2), "no such range");
  EXPECT_DEATH(tree.insert(ext(3, 0), 2), "assertion failed");
}

}  // namespace
}  // namespace forebay::plan
