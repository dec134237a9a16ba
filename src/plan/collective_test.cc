#include "plan/collective.h"

#include <gtest/gtest.h>

#include "core/testing.h"

namespace forebay::plan {
namespace {

const std::vector<Extent> kApart = {ext(0, 10), ext(10, 10)}, kMixed = {ext(0, 15), ext(5, 15)};

TEST(CollectiveChoice, TogetherOnlyWhereItPays) {
  MethodFacts facts{.regions = kMixed};
  EXPECT_TRUE(choose_method(facts).together);
  facts.regions = kApart;
  EXPECT_FALSE(choose_method(facts).together);
  facts.kept = true;
  EXPECT_TRUE(choose_method(facts).together);
  facts = {.regions = kMixed, .bytes = 30, .piece = 15, .large_piece = 15};
  EXPECT_FALSE(choose_method(facts).together);
  facts.large_piece = 16;
  EXPECT_TRUE(choose_method(facts).together);
  facts.cheap_if_dense = true;
  EXPECT_FALSE(choose_method(facts).together);
  const std::vector<Extent> wide = {ext(0, 1500), ext(500, 1500)};
  facts.regions = wide;
  EXPECT_TRUE(choose_method(facts).together);
}

TEST(CollectiveChoice, SmallPiecesInManyPagesAreNotCheap) {
  const std::vector<Extent> regions = {ext(0, 5000000), ext(640, 5000000)};
  MethodFacts facts{.regions = regions, .bytes = 1000000, .piece = 512, .cheap_if_dense = true};
  EXPECT_TRUE(choose_method(facts).together) << "one in 5120 bytes";
  facts.bytes = 2000000;
  EXPECT_FALSE(choose_method(facts).together) << "more than one in a page";
  facts.bytes = 1000000;
  facts.piece = 4096;
  EXPECT_FALSE(choose_method(facts).together) << "worth a call";
}

TEST(CollectiveChoice, HintsDecideUnlessItCannotBe) {
  EXPECT_TRUE(choose_method({.regions = kApart, .wish = Wish::enable}).together);
  EXPECT_FALSE(choose_method({.regions = kMixed, .wish = Wish::disable}).together);
  EXPECT_FALSE(
      choose_method({.regions = kMixed, .describable = false, .wish = Wish::enable}).together);
  EXPECT_FALSE(choose_method({.regions = kMixed, .atomic = true, .wish = Wish::enable}).together);
  const std::vector<Extent> far = {ext(0, 15), ext(kMaxOffset - 10, 10)};
  EXPECT_FALSE(choose_method({.regions = far, .wish = Wish::enable}).together);
  const std::vector<Extent> none(3);
  EXPECT_FALSE(choose_method({.regions = none, .wish = Wish::enable}).together);
}

TEST(CollectiveChoice, AggregatorsAreSpreadOverNodes) {
  const std::vector<uint32_t> nodes = {0, 0, 0, 0, 1, 1, 2};
  EXPECT_EQ(choose_aggregators(nodes, 0, 1), (std::vector{0, 4, 6}));
  EXPECT_EQ(choose_aggregators(nodes, 2, 8), (std::vector{0, 4}));
  EXPECT_EQ(choose_aggregators(nodes, 5, 8), (std::vector{0, 2, 4, 5, 6}));
  EXPECT_EQ(choose_aggregators(nodes, 0, UINT32_MAX).size(), 7u);
  EXPECT_EQ(choose_aggregators(nodes, 100, 2), (std::vector{0, 2, 4, 5, 6}));
}

TEST(CollectiveChoice, ConfigLists) {
  EXPECT_EQ(per_node_of("*:3"), 3u);
  EXPECT_EQ(per_node_of("*"), UINT32_MAX);
  EXPECT_EQ(per_node_of("*:*"), UINT32_MAX);
  for (const char* other : {"", "*:0", "host:1", "*:x", "*:1,host:2"})
    EXPECT_EQ(per_node_of(other), std::nullopt) << other;
}

TEST(CollectiveChoice, RealmsByWhatIsKnown) {
  const std::vector<Samples> dense = {{1000, {0, 500, 1000}}}, sparse = {{10, {0, 500, 1000}}};
  RealmFacts facts{.region = ext(0, 1000), .samples = dense, .aggregators = 2};
  EXPECT_EQ(choose_realms(facts).why, "even parts of the region");
  facts.samples = sparse;
  EXPECT_EQ(choose_realms(facts).why, "balanced by data");
  facts.persistent_size = 100;
  EXPECT_EQ(choose_realms(facts).realms.size(), 2u);
  EXPECT_EQ(choose_realms(facts).why, "persistent, from byte 0 on");
  facts = {.region = ext(0, 1000), .samples = dense, .aggregators = 4, .stripe = 10, .targets = 2};
  facts.kind = "striped";
  EXPECT_EQ(choose_realms(facts).why, "cyclic by stripes");
  facts.kind = "given";
  EXPECT_EQ(choose_realms(facts).unused, "there is no list of them");
  const GivenRealms two = *given_realms("0:10/20,10:10/20");
  facts.given = &two;
  EXPECT_EQ(choose_realms(facts).why, "as given");
  EXPECT_EQ(choose_realms(facts).unused, "");
  EXPECT_EQ(choose_realms(facts).realms.size(), 4u);
  const GivenRealms ends = *given_realms("0:10,10:10");
  facts.given = &ends;
  EXPECT_EQ(choose_realms(facts).why, "even parts of the region, aligned to stripes");
  EXPECT_EQ(choose_realms(facts).unused, "they end at byte 20, and the call at 1000");
  facts.given = &two;
  facts.aggregators = 1;
  EXPECT_EQ(choose_realms(facts).unused, "they are 2 for 1 aggregators");
  EXPECT_EQ(choose_realms(facts).realms.size(), 1u);
}

TEST(CollectiveChoice, RealmsAlignedToStripes) {
  const std::vector<Samples> dense = {{100'000, {0, 50'000, 100'000}}},
                             sparse = {{40'000, {0, 50'000, 100'000}}};
  RealmFacts facts{.region = ext(0, 100'000), .samples = dense, .aggregators = 3, .stripe = 1024};
  auto chosen = choose_realms(facts);
  EXPECT_EQ(chosen.why, "even parts of the region, aligned to stripes");
  EXPECT_EQ(chosen.realms[0].total(), Length(33 * 1024));
  facts.alignment = 1;  // says the user
  chosen = choose_realms(facts);
  EXPECT_EQ(chosen.why, "even parts of the region");
  EXPECT_EQ(chosen.realms[0].total(), Length(33'334));
  facts.alignment = 0;
  facts.samples = sparse;
  chosen = choose_realms(facts);
  EXPECT_EQ(chosen.why, "balanced by data, aligned to stripes");
  EXPECT_EQ(chosen.realms[0].total().value % 1024, 0u);
  facts.stripe = 2048;
  EXPECT_EQ(choose_realms(facts).why, "balanced by data") << "a stripe is much of a share";
}

TEST(CollectiveChoice, StripesAsHintsOrTheStoreSay) {
  const auto is = [](const ChosenStriping& chosen, uint64_t stripe, uint32_t targets,
                     uint32_t first, std::string_view says) {
    const Striping& s = chosen.striping;
    return s.stripe == stripe && s.targets == targets && s.first == first && chosen.says == says;
  };
  EXPECT_TRUE(is(choose_striping({}), 0, 1, 0, ""));
  EXPECT_TRUE(is(choose_striping({.factor = 8}), 0, 1, 0, "")) << "of what size?";
  EXPECT_TRUE(is(choose_striping({.unit = 100, .factor = 3, .first = 5}), 100, 3, 2, "hints say"));
  EXPECT_TRUE(is(choose_striping({.unit = 100}), 100, 1, 0, "hints say"));
  const Layout reported{4096, 4, 6};
  EXPECT_TRUE(is(choose_striping({.reported = reported}), 4096, 4, 2, "the file system says"));
  EXPECT_TRUE(
      is(choose_striping({.factor = 2, .reported = reported}), 4096, 2, 0, "the file system says"));
  EXPECT_TRUE(is(choose_striping({.unit = 100, .reported = reported}), 100, 1, 0, "hints say"));
  EXPECT_TRUE(is(choose_striping({.unit = 4096, .reported = reported}), 4096, 4, 2, "hints say"));
  // Whatever another machine's Store says.
  EXPECT_TRUE(is(choose_striping({.reported = {4096, 0, 1}}), 4096, 1, 0, "the file system says"));
  EXPECT_TRUE(is(choose_striping({.reported = {4096, UINT32_MAX, UINT32_MAX}}), 4096, 1, 0,
                 "the file system says"));
  EXPECT_FALSE(choose_striping({.reported = {UINT64_MAX, 4096, 0}}).striping.known());
}

}  // namespace
}  // namespace forebay::plan
