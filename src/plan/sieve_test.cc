#include "plan/sieve.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "core/testing.h"

namespace forebay::plan {
namespace {

constexpr SieveCosts kCosts{.call = 4096, .copies = 2, .window = 65536};

std::vector<SieveStep> steps_of(const Extents& file, SieveCosts costs = kCosts) {
  std::vector<SieveStep> steps;
  for (Sieve sieve(file, costs); auto step = sieve.next();) steps.push_back(*step);
  return steps;
}

Extents strided(uint64_t piece, int64_t stride, uint64_t count) {
  return Extents::make({ext(0, piece)}, {{count, stride}}).value();
}

bool sieves(const Extents& file, SieveCosts costs = kCosts) {
  for (const SieveStep& step : steps_of(file, costs)) {
    if (!step.window.empty()) return true;
  }
  return false;
}

TEST(Sieve, NothingComesOfNothing) {
  EXPECT_TRUE(steps_of(Extents()).empty());
}

TEST(Sieve, TheHolesDecideAndNotTheDensity) {
  EXPECT_TRUE(sieves(strided(8, 512, 16))) << "1 in 64";
  EXPECT_TRUE(sieves(strided(8, 4000, 16))) << "1 in 500";
  EXPECT_FALSE(sieves(strided(8, 8192, 16)));
  EXPECT_FALSE(sieves(strided(4096, 8192, 16))) << "half of it";
  EXPECT_TRUE(sieves(strided(1024, 2048, 16)));
  EXPECT_FALSE(sieves(strided(8192, 8200, 16))) << "the copy is dearer than the call";
}

TEST(Sieve, OneWindowIfAllOfItPays) {
  const auto steps = steps_of(strided(512, 2048, 16));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].window, ext(0, 15 * 2048 + 512));
  EXPECT_EQ(steps[0].stream, Length(16 * 512));
  EXPECT_TRUE(sieves(strided(512, 600, 2))) << "two pieces are one call saved";
}

// Windows of requests that are shifted against each other lie in the same parts of the file.
TEST(Sieve, OnAGridWindowsMeet) {
  constexpr SieveCosts kGrid{.call = 4096, .copies = 8, .window = 65536, .grid = 65536};
  for (const uint64_t shift : {0u, 700u, 2040u}) {
    const auto file = Extents::make({ext(shift, 512)}, {{100, 2048}}).value();
    Length stream;
    for (const SieveStep& step : steps_of(file, kGrid)) {
      ASSERT_FALSE(step.window.empty()) << "a piece alone too";
      EXPECT_EQ(step.window.offset.value / 65536, (step.window.end().value - 1) / 65536);
      stream += step.stream;
    }
    EXPECT_EQ(stream, file.total());
  }
  const auto large = steps_of(Extents(ext(1000, 4 * 65536 - 1000)), kGrid);
  ASSERT_EQ(large.size(), 1u);
  EXPECT_TRUE(large[0].window.empty());
}

TEST(Sieve, WindowsEndWhereTheBufferDoes) {
  const auto steps = steps_of(strided(512, 2048, 100));
  ASSERT_EQ(steps.size(), 4u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(steps[i].window, ext(i * 65536, 31 * 2048 + 512));
    EXPECT_EQ(steps[i].stream, Length(32 * 512));
  }
  EXPECT_EQ(steps[3].window, ext(3 * 65536, 3 * 2048 + 512));
  EXPECT_FALSE(sieves(strided(512, 2048, 100), {.call = 4096, .copies = 2, .window = 4096}))
      << "windows of two pieces gain nothing";
}

TEST(Sieve, ClustersFarApartAreWindowsOfTheirOwn) {
  std::vector<Extent> list;
  for (uint64_t cluster : {0, 1, 2}) {
    for (uint64_t i = 0; i < 8; ++i) list.push_back(ext((cluster << 30) + i * 100, 50));
  }
  list.push_back(ext(uint64_t{4} << 30, 50));
  const auto steps = steps_of(Extents::make(list).value());
  ASSERT_EQ(steps.size(), 4u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(steps[i].window, ext(i << 30, 750));
  EXPECT_TRUE(steps[3].window.empty());
  EXPECT_EQ(steps[3].stream, Length(50));
}

TEST(Sieve, ALargePieceDoesNotSpoilItsNeighbours) {
  std::vector<Extent> list = {ext(0, 40000)};
  for (uint64_t i = 0; i < 8; ++i) list.push_back(ext(40010 + i * 100, 50));
  list.push_back(ext(41000, 40000));
  const auto steps = steps_of(Extents::make(list).value());
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_TRUE(steps[0].window.empty());
  EXPECT_EQ(steps[1].window, ext(40010, 750));
  EXPECT_TRUE(steps[2].window.empty());
}

TEST(Sieve, WhatGoesBackBeginsAnew) {
  EXPECT_FALSE(sieves(strided(8, 0, 100))) << "the same bytes again and again";
  std::vector<Extent> list;
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 8; ++i) list.push_back(ext(i * 100, 50));
  }
  const auto steps = steps_of(Extents::make(list).value());
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].window, ext(0, 750));
  EXPECT_EQ(steps[1].window, ext(0, 750));
}

TEST(Sieve, AWindowThatIsReadFirstMustSaveThatToo) {
  const SieveCosts costs{.call = 4096, .begin = 4096, .copies = 2, .window = 65536};
  EXPECT_FALSE(sieves(strided(512, 600, 2), costs));
  EXPECT_TRUE(sieves(strided(512, 600, 3), costs));
}

TEST(LikelySieved, ByTheAverage) {
  EXPECT_FALSE(likely_sieved(Extents(), kCosts));
  EXPECT_FALSE(likely_sieved(Extents(ext(5, 100)), kCosts));
  EXPECT_TRUE(likely_sieved(strided(512, 2048, 1'000'000'000), kCosts));
  EXPECT_FALSE(likely_sieved(strided(512, 8192, 1'000'000'000), kCosts));
  EXPECT_FALSE(likely_sieved(strided(8192, 8200, 16), kCosts));
  EXPECT_TRUE(likely_sieved(strided(8, 0, 100), kCosts)) << "no holes";
}

TEST(Sieve, ABillionPiecesAreWalkedAsTheyAreAskedFor) {
  const Extents file = strided(8, 512, 1'000'000'000);
  Sieve sieve(file, kCosts);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(sieve.next()->window.empty());
  const Extents sparse = strided(8, 8192, 1'000'000'000);
  Sieve alone(sparse, kCosts);
  const auto step = alone.next();
  EXPECT_TRUE(step->window.empty());
  EXPECT_LE(step->stream, Length(8 * 8192)) << "a stretch is bounded";
}

TEST(Sieve, NumbersAtTheEndOfTheWorld) {
  const Extents file =
      Extents::make({ext(0, 1), ext(kMaxOffset - 2, 1), ext(kMaxOffset - 1, 1)}).value();
  for (const uint64_t call : {uint64_t{1}, kMaxOffset / 4}) {
    uint64_t stream = 0;
    for (const auto& s : steps_of(file, {.call = call, .copies = 1, .window = 1_MiB})) {
      stream += s.stream.value;
    }
    EXPECT_EQ(stream, 3u);
  }
}

// Every byte is in a step, in order; windows hold their pieces and no more, within the limit; and
// never cost more than the pieces alone.
TEST(Sieve, RandomListsBecomeStepsThatPay) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 3000; ++round) {
    std::vector<Extent> list;
    uint64_t at = random() % 1000;
    for (uint64_t n = 1 + random() % 40; n > 0; --n) {
      list.push_back(ext(at, 1 + random() % (random() % 4 ? 60 : 3000)));
      at = random() % 10 ? list.back().end().value + random() % (random() % 4 ? 100 : 5000)
                         : random() % 20000;
    }
    const Extents file = Extents::make(list).value();
    const SieveCosts costs{
        .call = 1 + random() % 3000, .copies = 1 + random() % 8, .window = 1 + random() % 20000};
    ExtentCursor cursor(file);
    for (const SieveStep& step : steps_of(file, costs)) {
      ASSERT_GT(step.stream.value, 0u);
      if (step.window.empty()) {
        cursor.advance(step.stream);
        continue;
      }
      ASSERT_LE(step.window.length.value, costs.window);
      ASSERT_EQ(cursor.current().offset, step.window.offset);
      uint64_t pieces = 0, left = step.stream.value;
      for (Offset end; left > 0; ++pieces) {
        const Extent piece = cursor.take(Length(left));
        ASSERT_GE(piece.offset, end) << "pieces rise";
        end = piece.end();
        left -= piece.length.value;
        if (left == 0) {
          ASSERT_EQ(end, step.window.end());
        }
      }
      ASSERT_GT(pieces, 1u);
      const uint64_t whole = costs.call + step.window.length.value;
      ASSERT_LT(whole, pieces * costs.call + step.stream.value);
    }
    ASSERT_TRUE(cursor.done());
  }
}

}  // namespace
}  // namespace forebay::plan
