// What ranks learn of each other's outcomes, over both kinds of shared state, by threads.
#include "mpiio/outcomes.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "mpiio/arrivals.h"
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
  ASSERT_TRUE(a.try_arrive(0, 0).value());
  EXPECT_FALSE(a.worst(0)->has_value());
  ASSERT_TRUE(a.try_arrive(1, 7).value());  // the second call of one before the first of the other
  EXPECT_FALSE(b.worst(0)->has_value());
  EXPECT_FALSE(b.worst(1)->has_value());
  ASSERT_TRUE(b.try_arrive(1, 3).value());  // in any order
  EXPECT_EQ(b.worst(1).value(), 7u);
  ASSERT_TRUE(b.try_arrive(0, 0).value());
  EXPECT_EQ(a.worst(0).value(), 0u);
  EXPECT_EQ(a.worst(1).value(), 7u) << "asked again";
}

TYPED_TEST(OutcomesTest, WhoIsFarAheadArrivesLater) {
  const auto first = this->world.rank(), second = this->world.rank();
  Outcomes a(*first, 2), b(*second, 2);
  for (uint64_t i = 0; i < Outcomes::kAhead; ++i) ASSERT_TRUE(a.try_arrive(i, 0).value());
  EXPECT_FALSE(a.try_arrive(Outcomes::kAhead, 5).value());
  EXPECT_FALSE(b.worst(0)->has_value());
  ASSERT_TRUE(b.try_arrive(0, 3).value());
  EXPECT_EQ(b.worst(0).value(), 3u);
  EXPECT_EQ(a.try_arrive(Outcomes::kAhead, 5).value(), 3u) << "what became of the one before";
}

// Of two calls with the same values, both failed.
TYPED_TEST(OutcomesTest, NoFailureIsLostToALaterOne) {
  constexpr uint64_t kMany = 3 * Outcomes::kCalls;
  const auto first = this->world.rank(), second = this->world.rank();
  Outcomes a(*first, 2), b(*second, 2);
  Arrivals of_a, of_b;
  const auto by_a = [&] { return Result<Outcomes>(a); };
  const auto by_b = [&] { return Result<Outcomes>(b); };
  const auto code_of = [](uint64_t call) -> uint32_t {
    return call % Outcomes::kCalls == 0 ? static_cast<uint32_t>(1 + call) : 0;
  };
  for (uint64_t call = 0; call < kMany; ++call) {
    of_a.add(call, 0, [](Result<void>) {});
    of_b.add(call, code_of(call), [](Result<void>) {});
  }
  for (uint64_t i = 0; i < kMany; ++i) of_a.try_all(by_a), of_b.try_all(by_b);
  EXPECT_TRUE(of_a.try_all(by_a) && of_b.try_all(by_b)) << "nobody waits for ever";
  for (uint64_t call = 0; call < kMany; ++call) {
    EXPECT_EQ(of_a.worst(a, call).value(), code_of(call)) << "call " << call;
    EXPECT_EQ(of_b.worst(b, call).value(), code_of(call)) << "call " << call;
  }
}

TYPED_TEST(OutcomesTest, ArrivalsGoInOrderAsSoonAsTheyCan) {
  constexpr uint64_t kAhead = 3 * Outcomes::kCalls;
  const auto first = this->world.rank(), second = this->world.rank();
  Outcomes other(*second, 2);
  const auto outcomes = [&] { return Result<Outcomes>(Outcomes(*first, 2)); };
  std::vector<uint64_t> told;
  Arrivals arrivals;
  for (uint64_t i = 0; i < kAhead; ++i) {
    const uint64_t number = i ^ 1;  // in another order than that of the calls
    arrivals.add(number, number == 60 ? 9 : 0, [&told, number](Result<void> result) {
      EXPECT_TRUE(result);
      told.push_back(number);
    });
  }
  EXPECT_FALSE(arrivals.try_all(outcomes));
  EXPECT_EQ(told.size(), Outcomes::kAhead);
  for (uint64_t i = 0; i < kAhead; ++i) {
    ASSERT_TRUE(other.try_arrive(i, 0).value());
    arrivals.try_all(outcomes);
    ASSERT_EQ(told.size(), std::min(kAhead, i + 1 + Outcomes::kAhead));
    ASSERT_EQ(other.worst(i).value(), i == 60 ? 9u : 0u);
  }
  EXPECT_TRUE(arrivals.try_all(outcomes));
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
}

TEST(Arrivals, AllAreToldOfAnError) {
  int told = 0;
  Arrivals arrivals;
  for (uint64_t i = 0; i < 3; ++i)
    arrivals.add(i, 0, [&](Result<void> result) { told += !result; });
  EXPECT_TRUE(arrivals.try_all([] { return Result<Outcomes>(Error(EIO, "gone")); }));
  EXPECT_EQ(told, 3);
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
        auto arrived = outcomes.try_arrive(call, code_of(rank, call));
        for (; arrived && !*arrived; arrived = outcomes.try_arrive(call, code_of(rank, call)))
          std::this_thread::yield();
        ASSERT_TRUE(arrived);
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
