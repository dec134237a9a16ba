// What ranks learn of each other's outcomes, over both kinds of shared state, by threads.
#include "mpiio/outcomes.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "mpiio/testing.h"

namespace forebay::mpiio {
namespace {

template <class World>
class OutcomesTest : public testing::Test {
 protected:
  World world;
};
using Worlds = testing::Types<NodeWorld, ArbiterWorld>;
TYPED_TEST_SUITE(OutcomesTest, Worlds);

TYPED_TEST(OutcomesTest, KnownWhenAllHaveArrived) {
  const auto first = this->world.rank(), second = this->world.rank();
  Outcomes a(*first, 2), b(*second, 2);
  ASSERT_TRUE(a.arrive(0, 0));
  EXPECT_FALSE(a.worst(0)->has_value());
  ASSERT_TRUE(a.arrive(1, 7));  // the second call of one before the first of the other
  EXPECT_FALSE(b.worst(0)->has_value());
  EXPECT_FALSE(b.worst(1)->has_value());
  ASSERT_TRUE(b.arrive(1, 3));  // in any order
  EXPECT_EQ(b.worst(1).value(), 7u);
  ASSERT_TRUE(b.arrive(0, 0));
  EXPECT_EQ(a.worst(0).value(), 0u);
  EXPECT_EQ(a.worst(1).value(), 7u) << "asked again";
}

TYPED_TEST(OutcomesTest, WhoIsFarAheadWaits) {
  const auto first = this->world.rank(), second = this->world.rank();
  Outcomes a(*first, 2), b(*second, 2);
  for (uint64_t i = 0; i < Outcomes::kCalls; ++i) ASSERT_TRUE(a.arrive(i, 0));
  std::thread ahead([&] { EXPECT_TRUE(a.arrive(Outcomes::kCalls, 5)); });
  EXPECT_FALSE(b.worst(0)->has_value());
  ASSERT_TRUE(b.arrive(0, 0));
  EXPECT_EQ(b.worst(0).value(), 0u);
  ahead.join();
  EXPECT_EQ(b.worst(0).value(), 0u) << "of the later call with the same values nothing shows";
}

// Ranks that drift apart, and ask at once or some calls later.
TYPED_TEST(OutcomesTest, RandomCallsAgainstAnOracle) {
  constexpr uint64_t kRanks = 5, kCalls = 300;
  const uint64_t seed = test_seed();
  const auto code_of = [seed](uint64_t rank, uint64_t call) -> uint32_t {
    std::mt19937_64 random(seed ^ (rank * 1'000'003 + call * 7919));
    return random() % 8 ? 0 : static_cast<uint32_t>(1 + random() % 60);
  };
  std::vector<std::thread> ranks;
  for (uint64_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto state = this->world.rank();
      Outcomes outcomes(*state, kRanks);
      std::mt19937_64 random(seed + rank);
      uint64_t asked = 0;
      for (uint64_t call = 0; call < kCalls; ++call) {
        ASSERT_TRUE(outcomes.arrive(call, code_of(rank, call)));
        if (random() % 3 && call + 1 < kCalls && call - asked < Outcomes::kCalls / 4) continue;
        for (; asked <= call; ++asked) {
          uint32_t expected = 0;
          for (uint64_t r = 0; r < kRanks; ++r) expected = std::max(expected, code_of(r, asked));
          auto worst = outcomes.worst(asked);
          for (; worst && !*worst; worst = outcomes.worst(asked)) std::this_thread::yield();
          ASSERT_TRUE(worst);
          ASSERT_EQ(**worst, expected) << "call " << asked;
        }
      }
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace forebay::mpiio
