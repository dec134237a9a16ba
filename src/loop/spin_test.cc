#include "loop/spin.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

using namespace std::chrono_literals;

// Waits awake in looks of this long; returns when it gives up.
Time wait(Spin& spin, Time now, Duration look) {
  spin.begin(now);
  do {
    now = now + look;
  } while (spin.go_on(now));
  spin.end(false, now);
  return now;
}

// As many failures as are none yet.
Time miss(Spin& spin, Time now) {
  for (unsigned i = 0; i < Spin::kMisses; ++i) {
    EXPECT_TRUE(spin.due(now));
    now = wait(spin, now, 1us);
  }
  return now;
}

TEST(Spin, GivesUpWhenItsOwnTimeIsSpent) {
  Spin spin;
  Time now{};
  now = miss(spin, now + 1h);
  ASSERT_TRUE(spin.due(now));
  const Time begun = now;
  now = wait(spin, now, 1us);
  EXPECT_EQ(now - begun, Spin::kBudget);
  EXPECT_FALSE(spin.due(now));
  EXPECT_FALSE(spin.due(now + (Spin::kFirstRest - 1us)));
  EXPECT_TRUE(spin.due(now + Spin::kFirstRest));
}

TEST(Spin, FailuresInARowAreFartherAndFartherApart) {
  Spin spin;
  Time now{};
  for (int round = 0; round < 2; ++round) {
    now = miss(spin, now);
    Duration expected = Spin::kFirstRest;
    for (int i = 0; i < 8; ++i) {
      now = wait(spin, now, 1us);
      EXPECT_FALSE(spin.due(now + (expected - 1us)));
      ASSERT_TRUE(spin.due(now + expected));
      now = now + expected;
      expected = std::min(2 * expected, Spin::kLongRest);
    }
    EXPECT_EQ(expected, Spin::kLongRest);
    // What comes in time ends the row.
    spin.begin(now);
    spin.end(true, now + 1us);
    now = now + 1us;
    EXPECT_TRUE(spin.due(now));
  }
}

TEST(Spin, WhatIsExpectedAndComesEndsARowOfFailuresToo) {
  Spin spin;
  Time now = miss(spin, Time{});
  for (int i = 0; i < 3; ++i) now = wait(spin, now, 1us) + Spin::kLongRest;
  now = wait(spin, now, 1us);
  spin.expect();
  spin.begin(now);
  spin.end(true, now + 1us);
  now = wait(spin, now + Spin::kLongRest, 1us);
  EXPECT_TRUE(spin.due(now + Spin::kFirstRest));
}

TEST(Spin, WhatOthersDoWithTheCoreIsNotItsOwnTime) {
  Spin spin;
  Time now{};
  const Time begun = now;
  now = wait(spin, now, 100us);
  EXPECT_EQ(now - begun, Spin::kBudget / Spin::kLook * 100us);
}

TEST(Spin, WhatIsExpectedIsWaitedForInAPauseToo) {
  Spin spin;
  Time now = wait(spin, miss(spin, Time{}), 1us);
  ASSERT_FALSE(spin.due(now));
  spin.expect();
  ASSERT_TRUE(spin.due(now));
  const Time begun = now;
  now = wait(spin, now, 1us);
  EXPECT_EQ(now - begun, Spin::kPatience);
  EXPECT_FALSE(spin.due(now)) << "once";
}

TEST(Spin, AfterLostSlicesThePausesGrowAndShrinkAgain) {
  Spin spin;
  Time now{};
  Duration expected = Spin::kShortPause;
  for (int i = 0; i < 8; ++i) {
    now = wait(spin, now, Spin::kSlice);
    EXPECT_FALSE(spin.due(now + (expected - 1us)));
    ASSERT_TRUE(spin.due(now + expected));
    now = now + expected;
    expected = std::min(2 * expected, Spin::kLongPause);
  }
  // What comes in time halves the next one.
  spin.begin(now);
  spin.end(true, now + 1us);
  now = wait(spin, now, Spin::kSlice);
  EXPECT_TRUE(spin.due(now + Spin::kLongPause));
  EXPECT_FALSE(spin.due(now + (Spin::kLongPause - 1us)));
  for (int i = 0; i < 20; ++i) {
    now = now + 1s;
    spin.begin(now);
    spin.end(true, now + 1us);
  }
  now = wait(spin, now, Spin::kSlice);
  EXPECT_TRUE(spin.due(now + Spin::kShortPause));
}

TEST(Spin, ATurnOfACrowdIsNotALostSlice) {
  Spin spin;
  Time now{};
  spin.crowd(256);
  const Duration turn = 2 * Spin::kSlice;
  const Time begun = now;
  now = wait(spin, now, turn);
  EXPECT_GE((now - begun) / turn, 8) << "turns that it waits for";
  EXPECT_TRUE(spin.due(now));
  now = wait(spin, now, spin.slice());
  EXPECT_FALSE(spin.due(now)) << "one who computes";
  spin.crowd(UINT32_MAX);
  EXPECT_LT(spin.slice(), 20ms) << "whatever a server says";
}

}  // namespace
}  // namespace forebay
