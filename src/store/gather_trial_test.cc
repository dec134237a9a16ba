#include "store/gather_trial.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace forebay::posix {
namespace {

// Writes that take so long each, together and alone, in ns; how many of them were together.
struct Costs {
  int64_t together, alone;
};

class Writers {
 public:
  uint64_t write(uint64_t writes, Costs costs) {
    uint64_t together = 0;
    for (uint64_t i = 0; i < writes; ++i) {
      now_ = now_ + Duration(trial().together() ? costs.together : costs.alone);
      together += trial().together();
      trial().count(1, [&] { return now_; });
    }
    return together;
  }
  GatherTrial& trial() { return *reinterpret_cast<GatherTrial*>(memory_); }
  void pause(Duration d) { now_ = now_ + d; }

 private:
  alignas(GatherTrial) std::byte memory_[sizeof(GatherTrial)] = {};
  Time now_{};
};

TEST(GatherTrial, TheFasterWayIsTaken) {
  Writers writers;
  constexpr uint64_t kMany = 2'000'000;
  EXPECT_GT(writers.write(kMany, {1000, 3000}), kMany * 95 / 100);
  Writers others;
  EXPECT_LT(others.write(kMany, {3000, 1000}), kMany * 5 / 100);
}

TEST(GatherTrial, WhatChangesIsSeen) {
  Writers writers;
  writers.write(500'000, {1000, 3000});
  EXPECT_TRUE(writers.trial().together());
  writers.write(3'000'000, {3000, 1000});
  EXPECT_FALSE(writers.trial().together());
  writers.write(40'000'000, {1000, 3000});
  EXPECT_TRUE(writers.trial().together());
}

// Most of what the worse way takes more is never spent.
TEST(GatherTrial, TryingCostsLittle) {
  Writers writers;
  constexpr uint64_t kMany = 10'000'000;
  const uint64_t together = writers.write(kMany, {20'000, 1000});
  EXPECT_LT(together * 20'000, kMany * 1000 / 20);
}

TEST(GatherTrial, APauseIsNotTheWritersFault) {
  Writers writers;
  writers.write(500'000, {1000, 1500});
  ASSERT_TRUE(writers.trial().together());
  for (int i = 0; i < 100; ++i) {
    writers.write(10'000, {1000, 1500});
    writers.pause(std::chrono::seconds(3));
  }
  EXPECT_GT(writers.write(1'000'000, {1000, 1500}), 900'000u);
}

}  // namespace
}  // namespace forebay::posix
