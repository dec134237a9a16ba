#include "loop/line.h"

#include <gtest/gtest.h>

#include <vector>

namespace forebay {
namespace {

using namespace std::chrono_literals;

// Those in line, each with a cost of being served; some have nothing.
struct Loop {
  explicit Loop(std::vector<Duration> what) : costs(std::move(what)), places(costs.size()) {}

  std::vector<size_t> turn() {
    std::vector<size_t> who;
    const size_t head = line.begin(costs.size(), now);
    for (size_t k = 0; k < costs.size(); ++k) {
      const size_t i = (head + k) % costs.size();
      if (costs[i] == 0us || line.leaves_out(places[i])) continue;
      now = now + costs[i];
      who.push_back(i);
      if (!line.served(places[i], i, now)) break;
    }
    now = now + later * static_cast<int64_t>(who.size());
    line.end(now);
    return who;
  }
  // Turns for so long: how often each was served, and the longest that it waited.
  struct Seen {
    std::vector<unsigned> times;
    std::vector<Duration> waited;
  };
  Seen run(Duration how_long) {
    Seen seen{std::vector<unsigned>(costs.size()), std::vector<Duration>(costs.size())};
    std::vector<Time> last(costs.size(), now);
    for (const Time end = now + how_long; now < end;) {
      const Time before = now;
      const auto who = turn();
      if (who.empty()) now = now + 1us;
      for (const size_t i : who) {
        ++seen.times[i];
        seen.waited[i] = std::max(seen.waited[i], before - last[i]);
        last[i] = now;
      }
    }
    return seen;
  }

  std::vector<Duration> costs;
  Duration later{0};  // of each that was served, when the turn ends
  std::vector<Line::Place> places;
  Line line;
  Time now{1h};
};

TEST(Line, WhatFitsInATurnIsInEachTurn) {
  Loop loop(std::vector<Duration>(10, 2us));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(loop.turn().size(), 10U);
}

TEST(Line, FewAreAlwaysLookedAt) {
  Loop loop(std::vector<Duration>(Line::kFew, 500us));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(loop.turn().size(), Line::kFew);
}

TEST(Line, TheSameOnesStayForAQuantumAndThenOthersCome) {
  Loop loop(std::vector<Duration>(32, 100us));
  loop.run(1s);  // nobody uses little any more
  std::vector<size_t> heads;
  for (int i = 0; i < 3200; ++i) heads.push_back(loop.turn().front());
  size_t changes = 0;
  for (size_t i = 1; i < heads.size(); ++i) changes += heads[i] != heads[i - 1];
  EXPECT_GE(changes, 25U);  // 320 ms
  EXPECT_LE(changes, 40U);
}

TEST(Line, NobodyStarves) {
  Loop loop(std::vector<Duration>(100, 120us));
  const auto seen = loop.run(10s);
  for (size_t i = 0; i < seen.times.size(); ++i) {
    EXPECT_GT(seen.times[i], 400U) << i;  // of some 830 that are its share
    EXPECT_LT(seen.waited[i], 2 * 100 * Line::kQuantum) << i;
  }
}

TEST(Line, WhoHasNothingIsPassedOver) {
  std::vector<Duration> costs(64, 0us);
  costs[40] = 100us;
  Loop loop(costs);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(loop.turn(), std::vector<size_t>{40});
}

TEST(Line, WhoUsesLittleDoesNotWaitForTheOthers) {
  Loop loop(std::vector<Duration>(128, 120us));
  loop.costs[77] = 0us;
  loop.run(2s);
  Duration longest{0};
  for (int i = 0; i < 200; ++i) {
    loop.costs[77] = 0us;
    loop.run(20ms);
    loop.costs[77] = 10us;
    const Time asked = loop.now;
    while (std::ranges::count(loop.turn(), 77U) == 0) {
    }
    longest = std::max(longest, loop.now - asked);
  }
  EXPECT_LT(longest, 3ms);
}

TEST(Line, WithVeryManyEachStillHasItsTurnInTime) {
  Loop loop(std::vector<Duration>(2000, 120us));
  const auto seen = loop.run(20s);
  for (size_t i = 0; i < seen.times.size(); ++i) {
    EXPECT_GT(seen.times[i], 10U) << i;
    EXPECT_LT(seen.waited[i], 3 * Line::kRound) << i;
  }
}

TEST(Line, OneSlowVisitIsForgiven) {
  Loop loop(std::vector<Duration>(256, 120us));
  loop.costs[77] = 5s;
  loop.run(30s);  // it was served, and others ever since
  loop.costs[77] = 10us;
  loop.run(10s);
  const auto seen = loop.run(1s);
  EXPECT_GT(seen.times[77], 20U);
}

TEST(Line, WhatIsDoneLaterCountsToo) {
  Loop loop(std::vector<Duration>(128, 1us));
  loop.later = 20us;
  loop.run(2s);
  EXPECT_LE(loop.turn().size(), 6U);
  loop.later = 0us;
  loop.run(1s);
  EXPECT_GE(loop.turn().size(), 50U);
}

TEST(Line, ATurnInWhichOthersHadTheCoreChangesLittle) {
  Loop loop(std::vector<Duration>(16, 2us));
  loop.run(100ms);
  loop.later = 1ms;
  loop.turn();
  loop.later = 0us;
  EXPECT_EQ(loop.turn().size(), 16U);
}

TEST(Line, TheHeadStaysWhereItIsWhenThoseBeforeItLeave) {
  Loop loop(std::vector<Duration>(20, 100us));
  while (loop.line.head() != 7) loop.turn();
  loop.line.left(3);
  EXPECT_EQ(loop.line.head(), 4U);
}

}  // namespace
}  // namespace forebay
