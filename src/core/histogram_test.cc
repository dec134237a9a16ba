#include "core/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/testing.h"

namespace forebay {
namespace {

TEST(Histogram, IsEmptyAtFirst) {
  Histogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.percentile(0.99), 0u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram h;
  for (uint64_t v : {0, 1, 2, 3, 4, 5, 6, 7}) h.add(v);
  for (uint64_t v : {0, 1, 2, 3, 4, 5, 6, 7}) {
    EXPECT_EQ(h.percentile(static_cast<double>(v + 1) / 8), v);
  }
}

TEST(Histogram, EveryValueHasAStep) {
  for (const uint64_t v : {uint64_t{9}, uint64_t{1} << 40, UINT64_MAX / 3, UINT64_MAX}) {
    Histogram h;
    h.add(v);
    EXPECT_GE(h.percentile(0.5), v);
    EXPECT_LE(h.percentile(0.5) - v, v / 4);
  }
}

TEST(Histogram, PercentilesAreNearTheTrueOnes) {
  std::mt19937_64 random(test_seed());
  Histogram h;
  std::vector<uint64_t> all;
  for (int i = 0; i < 10000; ++i) {
    all.push_back(uint64_t{1} << random() % 40 | random() % 1000);
    h.add(all.back());
  }
  std::ranges::sort(all);
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const uint64_t truth = all[static_cast<size_t>(share * 10000) - 1];
    EXPECT_GE(h.percentile(share), truth);
    EXPECT_LE(h.percentile(share), truth + truth / 4 + 1);
  }
  EXPECT_EQ(h.count(), 10000u);
}

}  // namespace
}  // namespace forebay
