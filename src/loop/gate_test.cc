#include "loop/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace forebay {
namespace {

TEST(Gate, CloseOfAnEmptyGateRunsAtOnce) {
  Gate gate;
  bool empty = false;
  gate.close([&] { empty = true; });
  EXPECT_TRUE(empty);
  EXPECT_FALSE(gate.enter());
}

TEST(Gate, CloseWaitsForTheLastToLeave) {
  Gate gate;
  ASSERT_TRUE(gate.enter());
  Gate::Pass pass(gate);
  bool empty = false;
  gate.close([&] { empty = true; });
  EXPECT_TRUE(gate.closing());
  EXPECT_FALSE(Gate::Pass(gate));
  gate.leave();
  EXPECT_FALSE(empty);
  EXPECT_EQ(gate.inside(), 1u);
  Gate::Pass moved = std::move(pass);
  pass.release();
  EXPECT_FALSE(empty);
  moved.release();
  EXPECT_TRUE(empty);
}

TEST(Gate, ManyThreadsEnterAndLeaveWhileItCloses) {
  for (int round = 0; round < 20; ++round) {
    Gate gate;
    std::atomic<int> inside{0}, empties{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        while (Gate::Pass pass{gate}) {
          ++inside;
          std::this_thread::yield();
          --inside;
        }
      });
    }
    gate.close([&] {
      EXPECT_EQ(inside.load(), 0);
      ++empties;
    });
    for (auto& t : threads) t.join();
    EXPECT_EQ(empties.load(), 1);
  }
}

TEST(GateDeathTest, DestroyingWithWorkInsideAsserts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Gate gate;
        (void)gate.enter();
      },
      "inside_ == 0");
}

}  // namespace
}  // namespace forebay
