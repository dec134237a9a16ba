#include "plan/windows.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/testing.h"
#include "plan/realms.h"
#include "plan/typemap_oracle.h"

namespace forebay::plan {
namespace {

std::vector<ViewPart> random_parts(TypeOracle& oracle) {
  std::vector<ViewPart> parts;
  for (int64_t n = oracle.pick(1, 6); n > 0; --n) {
    const OracleType type = oracle.make(2, true);
    const auto at = static_cast<uint64_t>(oracle.pick(0, 300));
    const auto size = static_cast<int64_t>(type.bytes.size());
    parts.push_back({TiledMap::view(Offset(at), type.map).value(), Length(0),
                     Length(static_cast<uint64_t>(oracle.pick(0, 3 * size)))});
  }
  return parts;
}

Extent region_of(const std::vector<ViewPart>& parts) {
  Extent region;
  for (const ViewPart& part : parts) {
    if (part.empty()) continue;
    const Extent of = part.bounds();
    if (region.empty()) region = of;
    const Offset low = std::min(region.offset, of.offset);
    region = {low, std::max(region.end(), of.end()) - low};
  }
  return region;
}

// All aggregators' windows, iteration by iteration.
struct Play {
  std::set<uint64_t> seen;
  size_t iterations = 0;

  void window(const std::vector<Extent>& runs, uint64_t most) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (i > 0) {
        ASSERT_LE(runs[i - 1].end(), runs[i].offset);
      }
      bytes += runs[i].length.value;
      for (uint64_t k = 0; k < runs[i].length.value; ++k)
        ASSERT_TRUE(seen.insert(runs[i].offset.value + k).second);
    }
    ASSERT_LE(bytes, most);
  }
};

constexpr WindowLimits kWide{1000, 100'000};  // any run counts for its bytes

std::vector<uint64_t> loads_of(const std::vector<ViewPart>& parts, const Realms& realms,
                               const Striping& striping, const WindowLimits& limits) {
  std::vector<uint64_t> loads;
  for (const TiledMap& realm : realms)
    for (const uint64_t n : loads_by_target(parts, realm, striping, limits)) loads.push_back(n);
  return loads;
}

TEST(Windows, StripesThatFitInNoFileAreNotKnown) {
  EXPECT_TRUE((Striping{uint64_t{1} << 40, 4096}.known()));
  EXPECT_FALSE((Striping{uint64_t{1} << 62, 2}.known()));
}

TEST(Windows, EveryByteOnceAndNoTargetForTwo) {
  TypeOracle oracle(test_seed());
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const auto parts = random_parts(oracle);
    const auto aggregators = static_cast<size_t>(oracle.pick(1, 5));
    const Striping striping{static_cast<uint64_t>(oracle.pick(4, 200)),
                            static_cast<uint32_t>(oracle.pick(1, 6)),
                            static_cast<uint32_t>(oracle.pick(0, 8))};
    const Realms realms = oracle.pick(0, 1)
                              ? even_realms(region_of(parts), aggregators, 1)
                              : striped_realms(striping.stripe, striping.targets, aggregators);
    const bool few_runs = oracle.pick(0, 1) > 0;
    const WindowLimits limits{static_cast<uint64_t>(oracle.pick(20, 500)),
                              static_cast<size_t>(few_runs ? oracle.pick(4, 40) : 100'000)};
    const auto loads = loads_of(parts, realms, striping, limits);
    std::vector<std::unique_ptr<Windows>> all;
    for (size_t a = 0; a < aggregators; ++a)
      all.push_back(windows_by_target(parts, realms[a], striping, limits, a, loads));
    Play play;
    for (bool any = true; any;) {
      any = false;
      std::map<uint64_t, size_t> served;  // target, by whom
      for (size_t a = 0; a < aggregators; ++a) {
        if (all[a]->done()) continue;
        any = true;
        const auto runs = all[a]->next();
        ASSERT_LE(runs.size(), limits.runs);
        play.window(runs, limits.bytes + static_cast<uint64_t>(kThreshold * double(limits.bytes)));
        if (HasFatalFailure()) return;
        for (const Extent& run : runs)
          for (uint64_t at = run.offset.value; at < run.end().value; ++at)
            ASSERT_EQ(served.try_emplace(at / striping.stripe % striping.targets, a).first->second,
                      a);
      }
    }
    std::set<uint64_t> expected;
    for (const ViewPart& part : parts)
      for (TiledCursor cursor = part.cursor(); !cursor.done();) {
        const Extent e = cursor.take(cursor.left());
        for (uint64_t k = 0; k < e.length.value; ++k) expected.insert(e.offset.value + k);
      }
    ASSERT_EQ(play.seen, expected);
    std::vector<uint64_t> on_target(striping.targets), counted(striping.targets);
    for (const uint64_t at : expected)
      ++on_target[(at / striping.stripe + striping.first) % striping.targets];
    for (size_t i = 0; i < loads.size(); ++i) counted[i % striping.targets] += loads[i];
    if (!few_runs) {
      ASSERT_EQ(counted, on_target) << "the load is the bytes";
    }
  }
}

// The realms stay as they were, so the pairs of ranks and aggregators that talk do too.
TEST(Windows, TheOrderChangesNobodysBytes) {
  TypeOracle oracle(test_seed());
  const auto parts = random_parts(oracle);
  const Realms realms = even_realms(region_of(parts), 3, 1);
  const Striping striping{64, 3};
  const auto loads = loads_of(parts, realms, striping, {100, 100});
  for (size_t a = 0; a < 3; ++a) {
    std::set<uint64_t> by_offset, by_target;
    const auto add = [](std::set<uint64_t>& to, const std::vector<Extent>& runs) {
      for (const Extent& run : runs)
        for (uint64_t k = 0; k < run.length.value; ++k) to.insert(run.offset.value + k);
    };
    for (auto w = windows_by_offset(parts, realms[a], {100, 100}); !w->done();)
      add(by_offset, w->next());
    for (auto w = windows_by_target(parts, realms[a], striping, {100, 100}, a, loads); !w->done();)
      add(by_target, w->next());
    EXPECT_EQ(by_offset, by_target);
  }
}

TEST(Windows, TheFirstStripesTargetMovesAllOthers) {
  const std::vector<ViewPart> parts = {
      {*TiledMap::view(Offset(0), *TypeMap::bytes(250)), Length(0), Length(250)}};
  const Realms realms = even_realms(ext(0, 250), 1, 1);
  using Bytes = std::vector<uint64_t>;
  EXPECT_EQ(loads_by_target(parts, realms[0], {100, 3, 0}, kWide), (Bytes{100, 100, 50}));
  EXPECT_EQ(loads_by_target(parts, realms[0], {100, 3, 1}, kWide), (Bytes{50, 100, 100}));
  EXPECT_EQ(loads_by_target(parts, realms[0], {100, 3, 5}, kWide), (Bytes{100, 50, 100}));
  EXPECT_EQ(loads_by_target(parts, realms[0], {100, 4, 3}, kWide), (Bytes{100, 50, 0, 100}));
}

// Pieces so small that runs are short before bytes are: planned like that, so that the order holds.
TEST(Windows, FewRunsAtATime) {
  const auto tile = TypeMap::resized(*TypeMap::bytes(1), 0, 10);
  const std::vector<ViewPart> parts = {
      {*TiledMap::view(Offset(0), *tile), Length(0), Length(1000)}};
  const Realms realms = even_realms(ext(0, 10'000), 2, 1);
  const Striping striping{100, 2};
  const WindowLimits limits{400, 50};
  const auto loads = loads_of(parts, realms, striping, limits);
  uint64_t total = 0;
  std::vector<std::unique_ptr<Windows>> all;
  for (size_t a = 0; a < 2; ++a)
    all.push_back(windows_by_target(parts, realms[a], striping, limits, a, loads));
  size_t iterations = 0;
  for (; !all[0]->done() || !all[1]->done(); ++iterations) {
    std::map<uint64_t, size_t> served;  // target, by whom
    for (size_t a = 0; a < 2; ++a) {
      ASSERT_FALSE(all[a]->done()) << "together";
      const auto runs = all[a]->next();
      ASSERT_LE(runs.size(), 50u);
      for (const Extent& run : runs) {
        total += run.length.value;
        ASSERT_EQ(served.try_emplace(run.offset.value / 100 % 2, a).first->second, a);
      }
    }
  }
  EXPECT_EQ(total, 1000u);
  EXPECT_LE(iterations, 16u) << "500 runs each, of 50 at most, of which a few are for what is cut";
}

TEST(Windows, TheOrderOfTargetsPaysIfWindowsMissSome) {
  const Striping striping{1000, 4, 0};
  EXPECT_TRUE(order_pays(striping, 100, 2));
  EXPECT_TRUE(order_pays(striping, 3999, 2));
  EXPECT_FALSE(order_pays(striping, 4000, 2));
  EXPECT_FALSE(order_pays(striping, UINT64_MAX, 2));
  EXPECT_FALSE(order_pays(striping, 100, 1)) << "nobody else is in the way";
  EXPECT_FALSE(order_pays({}, 100, 2)) << "not known";
  EXPECT_FALSE(order_pays({1000, 1, 0}, 100, 2)) << "nothing to order";
}

// Where the order is chosen without being asked for, it makes no requests smaller than a stripe.
TEST(Windows, WideStripingCutsNoStripes) {
  const uint64_t stripe = 1_MiB, half = 8_MiB, region = 512_MiB;
  const std::vector<ViewPart> parts = {
      {*TiledMap::view(Offset(0), *TypeMap::bytes(1)), Length(0), Length(region)}};
  const Realms realms = even_realms(ext(0, region), 2, 1);
  for (const uint32_t targets : {64u, 512u}) {
    const Striping striping{stripe, targets};
    ASSERT_TRUE(order_pays(striping, half, 2));
    const WindowLimits limits{half, 65536};
    const auto loads = loads_of(parts, realms, striping, limits);
    size_t windows = 0;
    for (size_t a = 0; a < 2; ++a)
      for (auto w = windows_by_target(parts, realms[a], striping, limits, a, loads); !w->done();
           ++windows)
        for (const Extent& run : w->next()) {
          ASSERT_EQ(run.offset.value % stripe, 0u);
          ASSERT_EQ(run.length.value % stripe, 0u);
        }
    EXPECT_EQ(windows, region / half);
  }
}

}  // namespace
}  // namespace forebay::plan
