// Every order that three clients with three requests each can come in and be served in, and many of
// the rest: is what they see legal? (docs/consistency.md)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/testing.h"
#include "run.h"

namespace forebay::order {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

Ask write(Ranges where) {
  return {true, std::move(where)};
}
Ask read(Ranges where) {
  return {false, std::move(where)};
}

Script contiguous() {
  return {{{write({{0, 8}}), read({{4, 8}}), write({{4, 8}})},
           {read({{0, 16}}), write({{2, 8}}), read({{2, 8}})},
           {write({{6, 8}}), write({{0, 4}}), read({{0, 8}})}}};
}

Script lists() {
  const Ranges even = {{0, 1}, {2, 1}, {4, 1}, {6, 1}}, odd = {{1, 1}, {3, 1}, {5, 1}, {7, 1}};
  return {{{write(even), read(odd), write({{1, 1}, {4, 1}, {7, 1}})},
           {write({{1, 3}}), read({{0, 8}}), write(even)},
           {read({{0, 3}, {5, 2}}), write({{3, 3}}), read({{6, 2}, {0, 2}})}}};
}

// Writes that continue each other, to be merged.
Script adjacent() {
  return {{{write({{0, 4}}), read({{0, 12}}), write({{4, 4}})},
           {write({{4, 4}}), write({{2, 8}}), read({{0, 12}})},
           {write({{8, 4}}), read({{0, 12}}), write({{0, 12}})}}};
}

// In chunks of 8 cells, beside small requests of up to 2.
Script bulk() {
  return {{{write({{0, 12}}), read({{8, 2}}), write({{7, 2}})},
           {read({{0, 12}}), write({{4, 8}}), read({{8, 2}})},
           {write({{0, 2}, {4, 2}, {8, 4}}), write({{1, 1}, {8, 1}}), read({{0, 1}, {8, 1}})}}};
}

struct Load {
  const char* name;
  Script script;
  uint64_t cell;
  friend void PrintTo(const Load& load, std::ostream* out) { *out << load.name; }
};
const Load kLoads[] = {
    {"contiguous", contiguous(), 8},
    {"lists", lists(), 8},
    {"adjacent", adjacent(), 8},
    {"bulk", bulk(), 512},
};

using Policy = SchedulerOptions::Policy;
struct Service {
  const char* name;
  SchedulerOptions scheduler;
  unsigned concurrency;
  friend void PrintTo(const Service& service, std::ostream* out) { *out << service.name; }
};
const Service kServices[] = {
    {"fifo", {.policy = Policy::fifo}, 0},
    {"tree", {.policy = Policy::hbrr}, 0},
    {"brute", {.policy = Policy::hbrr, .brute_force = true}, 3},
    {"auto", {.policy = Policy::automatic}, 3},
};

// ---- Does the oracle see what is wrong? ----

TEST(Legal, Orders) {
  const Ranges all = {{0, 2}};
  const Cells before = {0, 1};
  const Happened a{0, true, all, {10, 11}, 1, 4, false}, b{1, true, all, {20, 21}, 2, 5, false};
  EXPECT_TRUE(legal({a, b}, before, {10, 11}));
  EXPECT_TRUE(legal({a, b}, before, {20, 21}));
  EXPECT_FALSE(legal({a, b}, before, {10, 21})) << "torn";
  EXPECT_FALSE(legal({a, b}, before, {0, 1})) << "neither was done";

  Happened later = b;
  later.sent = 5;
  EXPECT_TRUE(legal({a, later}, before, {20, 21}));
  EXPECT_FALSE(legal({a, later}, before, {10, 11})) << "the first had ended";
  Happened own = b;
  own.client = 0;
  EXPECT_TRUE(legal({a, own}, before, {20, 21}));
  EXPECT_FALSE(legal({a, own}, before, {10, 11})) << "of one client";
}

TEST(Legal, Reads) {
  const Ranges all = {{0, 2}};
  const Cells before = {0, 1}, after = {10, 11};
  const Happened write{0, true, all, {10, 11}, 1, 4, false};
  Happened read{1, false, all, {0, 1}, 2, 5, false};
  EXPECT_TRUE(legal({write, read}, before, after));
  read.cells = {10, 11};
  EXPECT_TRUE(legal({write, read}, before, after));
  read.cells = {10, 1};
  EXPECT_FALSE(legal({write, read}, before, after)) << "half of a write";
  read.cells = {0, 1};
  read.sent = 5;
  EXPECT_FALSE(legal({write, read}, before, after)) << "stale";

  Happened newer{1, false, all, {10, 11}, 2, 5, false}, older{1, false, all, {0, 1}, 3, 6, false};
  EXPECT_FALSE(legal({write, newer, older}, before, after)) << "back in time";
  newer.lost = true;
  EXPECT_TRUE(legal({write, newer, older}, before, after)) << "done again";
}

// ---- All there is ----

class Order : public ::testing::TestWithParam<std::tuple<Load, Service>> {
 protected:
  // Every run that the rules allow, each from scratch.
  void explore(const Rules& rules, bool real_clients) {
    const auto& [load, service] = GetParam();
    Setting setting;
    setting.scheduler = service.scheduler;
    setting.concurrency = service.concurrency;
    setting.cell = load.cell;
    setting.real = real_clients;
    uint64_t runs = 0, cuts = 0, merged = 0;
    Odometer odometer;
    do {
      Stage stage(setting);
      cuts += run(stage, load.script, rules, odometer);
      ++runs;
      merged += stage.merged();
      const std::string wrong = stage.verdict();
      ASSERT_EQ(wrong, "") << "in run " << runs;
    } while (odometer.advance() && runs < most_);
    fmt::print("{} by {}: {} runs, {} of them with a lost connection, {} merged calls\n", load.name,
               service.name, runs, cuts, merged);
  }

  const uint64_t most_ = kSlow ? 500 : UINT64_MAX;
};

std::string named(const ::testing::TestParamInfo<std::tuple<Load, Service>>& of) {
  return fmt::format("{}_{}", std::get<0>(of.param).name, std::get<1>(of.param).name);
}

INSTANTIATE_TEST_SUITE_P(All, Order,
                         ::testing::Combine(::testing::ValuesIn(kLoads),
                                            ::testing::ValuesIn(kServices)),
                         named);

TEST_P(Order, EveryArrivalAndEveryCompletion) {
  explore({}, false);
}

TEST_P(Order, OneRequestOfEachClientAtATime) {
  explore({.arrivals = Arrivals::answered}, false);
}

TEST_P(Order, OneReconnectAtEachStep) {
  explore({.arrivals = Arrivals::answered, .cut = {0, 1, 2}}, true);
}

class OrderAndReconnect : public Order {};

INSTANTIATE_TEST_SUITE_P(All, OrderAndReconnect,
                         ::testing::Values(std::tuple(kLoads[0], kServices[1]),
                                           std::tuple(kLoads[3], kServices[0])),
                         named);

TEST_P(OrderAndReconnect, EveryArrivalAndOneReconnectAtEachStep) {
  explore({.cut = {0}, .calls_in_order = true}, true);
}

// ---- The rest, by chance ----

Setting random_setting(Chooser& dice) {
  const Service& service = kServices[dice.pick(std::size(kServices))];
  Setting s;
  s.scheduler = service.scheduler;
  s.concurrency = dice.pick(4);
  s.cell = 512;
  s.in_flight = 1 + dice.pick(4);
  s.pipeline = static_cast<Pipeline>(dice.pick(3));
  s.pool = (4 + dice.pick(12)) * 4_KiB;
  s.real = dice.pick(2) == 0;
  s.network = {};
  return s;
}

// Requests of up to four chunks, whose transfers and calls mix as they like, on a network with
// delays. One in two of the worlds has the real clients, which lose connections as well.
class OrderByChance : public ::testing::TestWithParam<unsigned> {};

INSTANTIATE_TEST_SUITE_P(Quarter, OrderByChance, ::testing::Values(0u, 1u, 2u, 3u));

TEST_P(OrderByChance, Chunks) {
  constexpr unsigned kSamples = kSlow ? 1'000 : 25'000;
  constexpr unsigned kOfOneWorld = 50;
  const uint64_t seed = test_seed() + (uint64_t{GetParam()} << 32);
  uint64_t cuts = 0, merged = 0, reconnects = 0;
  for (uint64_t world = seed; world < seed + kSamples / kOfOneWorld; ++world) {
    Dice dice(world);
    const Setting setting = random_setting(dice);
    Stage stage(setting, world);
    stage.store().early = [&dice] { return dice.pick(2) == 0; };
    Rules rules{.arrivals = Arrivals::any, .settle = false};
    if (setting.real) rules.cut = {0, 1, 2};
    for (unsigned i = 0; i < kOfOneWorld; ++i) {
      cuts += run(stage, random_script(dice), rules, dice);
      const std::string wrong = stage.verdict();
      ASSERT_EQ(wrong, "") << "sample " << i << ", FOREBAY_SEED=" << world << " replays it";
      stage.reset();
    }
    merged += stage.merged();
    reconnects += stage.reconnects();
  }
  fmt::print("{} samples, {} with a lost connection, {} merged calls\n", kSamples, cuts, merged);
  EXPECT_GE(reconnects, cuts);
}

}  // namespace
}  // namespace forebay::order
