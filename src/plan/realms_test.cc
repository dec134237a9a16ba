#include "plan/realms.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(ranges_of((*realms)[1])(Offset(300)), ext(400, 200));
  EXPECT_TRUE(complete(*realms, ext(50, 100'000)));
  const auto halves = given_realms("0:1000,1000:9000");
  ASSERT_TRUE(halves.has_value());
  EXPECT_FALSE(complete(*halves, ext(9000, 2000)));
  for (const char* bad : {"", "x", "1:0", "0:100/50", "0:100,50:100", "0:100,200:100", "10:100",
                          "0:10,9223372036854775800:100", "9223372036854775807:1/5"})
    EXPECT_TRUE(!given_realms(bad).has_value() || std::string_view(bad).empty()) << bad;
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

TEST(Realms, InterleavedOrNot) {
  EXPECT_FALSE(interleaved(std::vector{ext(100, 50), ext(0, 100), ext(10, 0), ext(150, 1)}));
  EXPECT_TRUE(interleaved(std::vector{ext(100, 50), ext(0, 101)}));
}

}  // namespace
}  // namespace forebay::plan
