#include "mpiio/dirty_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "core/testing.h"

namespace forebay::mpiio {
namespace {

constexpr uint32_t kSize = 256;

struct Page {
  DirtyBounds bounds;
  std::vector<uint64_t> words = std::vector<uint64_t>(kSize / 64);
  DirtyBytes dirty{bounds, words.data()};
  std::vector<bool> oracle = std::vector<bool>(kSize);

  void assign(uint32_t from, uint32_t to, bool value) {
    value ? dirty.add(from, to) : dirty.remove(from, to);
    std::fill(oracle.begin() + from, oracle.begin() + to, value);
  }
  void check() const {
    std::vector<bool> seen(kSize);
    uint32_t last = 0;
    dirty.each_run([&](uint32_t from, uint32_t to) {
      ASSERT_TRUE(from < to && to <= kSize);
      ASSERT_TRUE(last == 0 || from > last) << "runs that touch are one";
      std::fill(seen.begin() + from, seen.begin() + to, true);
      last = to;
    });
    ASSERT_EQ(seen, oracle);
    ASSERT_EQ(bounds.any(), last != 0);
    ASSERT_EQ(bounds.high, last);
    if (!bounds.scattered) {
      ASSERT_EQ(words, std::vector<uint64_t>(kSize / 64));
    }
  }
  bool covers(uint32_t from, uint32_t to) const {
    return std::find(oracle.begin() + from, oracle.begin() + to, false) == oracle.begin() + to;
  }
};

TEST(DirtyBytes, RandomRangesAgainstAListOfBytes) {
  std::mt19937_64 random(test_seed());
  for (int page_number = 0; page_number < 500; ++page_number) {
    Page page;
    const uint32_t longest = 1 + random() % kSize;
    for (int i = 0; i < 40; ++i) {
      const uint32_t from = random() % kSize;
      const uint32_t to = std::min<uint32_t>(kSize, from + 1 + random() % longest);
      page.assign(from, to, random() % 3 != 0);
      page.check();
      if (testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(page.dirty.covers(from, to), page.covers(from, to));
      const uint32_t low = random() % kSize, high = low + 1 + random() % (kSize - low);
      ASSERT_EQ(page.dirty.covers(low, high), page.covers(low, high));
    }
    page.dirty.clear();
    for (const uint64_t word : page.words) ASSERT_EQ(word, 0u) << "bits are left behind";
  }
}

TEST(DirtyBytes, RunsThatTouchNeedNoBits) {
  Page page;
  for (const uint32_t from : {96, 64, 128, 32, 160}) page.assign(from, from + 32, true);
  EXPECT_FALSE(page.bounds.scattered);
  page.check();
  page.assign(0, 31, true);
  EXPECT_TRUE(page.bounds.scattered);
  page.check();
  page.assign(31, 32, true);
  EXPECT_FALSE(page.bounds.scattered) << "one run again";
  page.check();
}

}  // namespace
}  // namespace forebay::mpiio
