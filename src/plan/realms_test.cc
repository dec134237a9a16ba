#include "plan/realms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "core/testing.h"

namespace forebay::plan {
namespace {

std::optional<Extent> first_of(const TiledMap& realm) {
  return ranges_of(realm)(Offset(0));
}

TEST(Realms, EvenPartsWithAlignedBorders) {
  const Realms realms = even_realms(ext(100, 1000), 3, 256);
  EXPECT_EQ(first_of(realms[0]), ext(100, 412));  // to 512
  EXPECT_EQ(first_of(realms[1]), ext(512, 256));
  EXPECT_EQ(first_of(realms[2]), ext(768, 332));
  EXPECT_TRUE(complete(realms, ext(100, 1000)));
}

// Whole stripes to each, unless the largest part gets more than an eighth larger.
TEST(Realms, AlignedToStripesWhereThatIsEven) {
  EXPECT_EQ(even_alignment(ext(0, 1000), 4, 0), 1u) << "not known";
  EXPECT_EQ(even_alignment(ext(0, 4000), 4, 1000), 1000u) << "a stripe each";
  EXPECT_EQ(even_alignment(ext(0, 5000), 4, 1000), 1u) << "two of them for one";
  EXPECT_EQ(even_alignment(ext(0, 4000), 3, 1000), 1u) << "two of them for one";
  EXPECT_EQ(even_alignment(ext(500, 4000), 4, 1000), 1u) << "the first has half a stripe more";
  EXPECT_EQ(even_alignment(ext(500, 64'000), 4, 1000), 1000u) << "of sixteen";
  EXPECT_EQ(even_alignment(ext(0, 33'000), 4, 1000), 1000u) << "nine of eight and a quarter";
  EXPECT_EQ(even_alignment(ext(0, 10), 4, 1000), 1u);
  EXPECT_EQ(even_alignment(ext(0, 1000), 4, UINT64_MAX), 1u);
  EXPECT_EQ(even_alignment(ext(kMaxOffset / 4, kMaxOffset / 4), 3, kMaxOffset / 4), 1u);
}

TEST(Realms, NoneIsMuchLargerForBeingAligned) {
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 2000; ++i) {
    const Extent region = ext(random() % 10'000, 1 + random() % 100'000);
    const size_t n = 1 + random() % 9;
    const uint64_t stripe = 1 + random() % 5000, alignment = even_alignment(region, n, stripe);
    ASSERT_TRUE(alignment == stripe || alignment == 1);
    const Realms realms = even_realms(region, n, alignment);
    ASSERT_TRUE(complete(realms, region));
    const uint64_t share = (region.length.value + n - 1) / n;
    for (const TiledMap& realm : realms) {
      ASSERT_TRUE(still_even(share, realm.total().value));
      const auto first = first_of(realm);
      if (!first || first->end() == region.end()) continue;
      ASSERT_EQ(first->end().value % alignment, 0u);
    }
  }
}

TEST(Realms, SmallRegionsLeaveSomeWithout) {
  const Realms realms = even_realms(ext(0, 2), 4, 1);
  EXPECT_EQ(realms[3].total(), Length(0));
  EXPECT_TRUE(complete(realms, ext(0, 2)));
}

// Two clusters far apart: by span one aggregator would have all of one, and the second nothing.
TEST(Realms, BalancedByDataRatherThanBySpan) {
  const uint64_t far = 1'000'000'000;
  const std::vector<Samples> ranks = {{4000, {0, 1000, 2000, 3000, 4000}},
                                      {4000, {far, far + 2000, far + 4000}}};
  const Realms realms = balanced_realms(ext(0, far + 4000), ranks, 4, 1);
  EXPECT_EQ(first_of(realms[0]), ext(0, 2000));
  EXPECT_EQ(first_of(realms[1]), ext(2000, 2000));
  EXPECT_TRUE(complete(realms, ext(0, far + 4000)));
  EXPECT_EQ(first_of(realms[3]), ext(far + 2000, 2000));
}

TEST(Realms, CyclicOverTheWholeFile) {
  const Realms realms = cyclic_realms(100, 3);
  EXPECT_EQ(ranges_of(realms[1])(Offset(0)), ext(100, 100));
  EXPECT_EQ(ranges_of(realms[1])(Offset(250)), ext(400, 100));
  EXPECT_TRUE(complete(realms, ext(12'345, 10'000)));
  EXPECT_TRUE(complete(cyclic_realms(kMaxOffset / 2, 3), ext(0, 10'000)));
}

// Each aggregator has targets of its own, or each target aggregators of its own.
TEST(Realms, StripesNeverShareATargetByHalves) {
  for (uint32_t targets = 1; targets <= 12; ++targets) {
    for (size_t aggregators = 1; aggregators <= 16; ++aggregators) {
      const Realms realms = striped_realms(10, targets, aggregators);
      ASSERT_TRUE(complete(realms, ext(0, 10 * targets * aggregators)));
      size_t used = 0;
      for (const TiledMap& realm : realms) used += realm.total() > Length(0);
      EXPECT_TRUE(used % targets == 0 || targets % used == 0);
    }
  }
}

TEST(Realms, AsTheUserSays) {
  const auto realms = given_realms("0:100/300,100:200/300");
  ASSERT_TRUE(realms.has_value());
  EXPECT_EQ(ranges_of(realms->realms[1])(Offset(300)), ext(400, 200));
  EXPECT_TRUE(complete(realms->realms, ext(50, 100'000)));
  EXPECT_GT(realms->end, kMaxOffset / 2) << "one period tells all";
  const auto halves = given_realms("0:1000,1000:9000");
  ASSERT_TRUE(halves.has_value());
  EXPECT_FALSE(complete(halves->realms, ext(9000, 2000)));
  EXPECT_EQ(halves->end, 10'000u);
  for (const char* bad : {"", "x", "1:0", "0:100/50", "0:100,50:100", "0:100,200:100", "10:100",
                          "0:10,9223372036854775800:100", "9223372036854775807:1/5"})
    EXPECT_TRUE(!given_realms(bad).has_value() || std::string_view(bad).empty()) << bad;
}

// However long files are: realms of 4 KiB were walked to the end of each call's region.
TEST(Realms, GivenOnesAreLookedAtOnce) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("{}{}:4096/32768", i ? "," : "", i * 4096);
  const auto realms = given_realms(text);
  ASSERT_TRUE(realms.has_value());
  EXPECT_GT(realms->end, kMaxOffset / 2);
}

TEST(Realms, GivenOnesEndWhereAByteIsInNoneOrInTwo) {
  std::mt19937_64 random(test_seed());
  constexpr uint64_t kFar = 3000;
  int good = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    std::vector<int> times(kFar);
    uint64_t at = 0, last = 0;
    const uint64_t period = 1 + random() % 30;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      const uint64_t length = 1 + random() % 10;
      const uint64_t stride =
          random() % 3 == 0 ? 0 : length + (random() % 2 ? period : random() % 9);
      if (random() % 8 == 0) at += random() % 3;
      text += fmt::format("{}{}:{}", text.empty() ? "" : ",", at, length);
      if (stride > 0) text += fmt::format("/{}", stride);
      for (uint64_t from = at; from < kFar; from += stride ? stride : kFar)
        for (uint64_t k = from; k < std::min(kFar, from + length); ++k) ++times[k];
      last = std::max({last, at + length, at + stride});
      at += length;
    }
    uint64_t end = 0;
    while (end < kFar && times[end] == 1) ++end;
    const auto realms = given_realms(text);
    ASSERT_EQ(realms.has_value(), end >= last) << text;
    if (!realms) continue;
    ++good;
    if (end < kFar)
      ASSERT_EQ(realms->end, end) << text;
    else
      ASSERT_GT(realms->end, kMaxOffset / 2) << text;
  }
  EXPECT_GT(good, 100);
}

TEST(Realms, SizesOfPersistentOnes) {
  PersistentFacts facts{.form = Persistent::user,
                        .user_size = 1000,
                        .file_size = 1 << 20,
                        .region = ext(5000, 3000),
                        .aggregators = 4,
                        .alignment = 512};
  EXPECT_EQ(persistent_size(facts), 1024u);
  facts.form = Persistent::file_size;
  EXPECT_EQ(persistent_size(facts), 1u << 18);
  facts.form = Persistent::region;
  EXPECT_EQ(persistent_size(facts), 1024u);
  facts.region = {};
  EXPECT_EQ(persistent_size(facts), 512u);
}

TEST(Realms, PersistentOnesOfWholeStripes) {
  PersistentFacts facts{.form = Persistent::region,
                        .user_size = 100'000,
                        .region = ext(0, 400'000),
                        .aggregators = 4,
                        .alignment = 512,
                        .stripe = 10'240};
  EXPECT_EQ(persistent_size(facts), 102'400u) << "ten stripes";
  facts.form = Persistent::user;
  EXPECT_EQ(persistent_size(facts), 100'352u) << "as the user says, of whole pages";
  facts.form = Persistent::region;
  facts.stripe = 65'536;
  EXPECT_EQ(persistent_size(facts), 100'352u) << "two stripes would be far more";
  facts.stripe = 103'000;
  EXPECT_EQ(persistent_size(facts), 100'352u) << "no multiple of the alignment is near";
  for (const uint64_t stripe : {UINT64_MAX, uint64_t{1} << 62}) {
    facts.stripe = stripe;
    EXPECT_EQ(persistent_size(facts), 100'352u);
  }
}

TEST(Realms, InterleavedOrNot) {
  EXPECT_FALSE(interleaved(std::vector{ext(100, 50), ext(0, 100), ext(10, 0), ext(150, 1)}));
  EXPECT_TRUE(interleaved(std::vector{ext(100, 50), ext(0, 101)}));
}

}  // namespace
}  // namespace forebay::plan
