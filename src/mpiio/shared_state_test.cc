// What all kinds of shared state promise, by threads.
#include "mpiio/shared_state.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "mpiio/testing.h"

namespace forebay::mpiio {
namespace {

using namespace std::chrono_literals;

template <class World>
class SharedStateTest : public testing::Test {
 protected:
  World world;

  // fn(rank, state) on as many threads, each with a state of its own.
  template <class Fn>
  void run_ranks(int ranks, Fn&& fn) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto state = world.rank();
        fn(rank, *state);
      });
    }
    for (auto& thread : threads) thread.join();
  }
};
using StateWorlds = testing::Types<NodeWorld, ArbiterWorld, AttrWorld>;
TYPED_TEST_SUITE(SharedStateTest, StateWorlds);

TYPED_TEST(SharedStateTest, ValuesDoWhatTheirNamesSay) {
  const auto a = this->world.rank(), b = this->world.rank();
  EXPECT_EQ(a->get(kPointer).value(), 0u);
  ASSERT_TRUE(a->set(kPointer, 40));
  EXPECT_EQ(b->fetch_and_add(kPointer, 2).value(), 40u);
  EXPECT_EQ(a->get(kPointer).value(), 42u);
  EXPECT_EQ(a->compare_and_swap(kPointer, 41, 1).value(), 42u);
  EXPECT_EQ(a->compare_and_swap(kPointer, 42, 1).value(), 42u);
  EXPECT_EQ(b->get(kPointer).value(), 1u);
  EXPECT_EQ(b->fetch_and_add(kPointer, static_cast<uint64_t>(-1)).value(), 1u);
  EXPECT_EQ(b->get(static_cast<Slot>(kSlots - 1)).value(), 0u) << "another slot";
}

TYPED_TEST(SharedStateTest, EveryRankGetsItsOwnPlace) {
  constexpr int kRanks = 6, kAdds = 500;
  std::vector<std::vector<uint64_t>> got(kRanks);
  this->run_ranks(kRanks, [&](int rank, SharedState& state) {
    for (int i = 0; i < kAdds; ++i) {
      got[rank].push_back(state.fetch_and_add(kPointer, 8).value());
    }
  });
  std::set<uint64_t> all;
  for (const auto& one : got) {
    EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
    all.insert(one.begin(), one.end());
  }
  ASSERT_EQ(all.size(), size_t{kRanks} * kAdds) << "a place given twice";
  EXPECT_EQ(*all.rbegin(), 8u * (kRanks * kAdds - 1)) << "a gap";
}

TYPED_TEST(SharedStateTest, CompareAndSwapLosesNoUpdate) {
  constexpr int kRanks = 4, kAdds = 200;
  this->run_ranks(kRanks, [&](int, SharedState& state) {
    for (int i = 0; i < kAdds; ++i) {
      uint64_t seen = state.get(kPointer).value();
      for (;;) {
        const uint64_t before = state.compare_and_swap(kPointer, seen, seen + 1).value();
        if (before == seen) break;
        seen = before;
      }
    }
  });
  EXPECT_EQ(this->world.rank()->get(kPointer).value(), uint64_t{kRanks} * kAdds);
}

// Two plain numbers that are equal whenever nobody writes.
TYPED_TEST(SharedStateTest, LocksExclude) {
  constexpr int kRanks = 5, kTurns = 300;
  const uint64_t seed = test_seed();
  uint64_t left = 0, right = 0, writes = 0;
  this->run_ranks(kRanks, [&](int rank, SharedState& state) {
    std::mt19937_64 random(seed + rank);
    for (int i = 0; i < kTurns; ++i) {
      const uint64_t from = random() % 50;  // all share byte 50
      const bool write = random() % 2;
      const auto held = state.lock(range(from, 51 - from + random() % 50),
                                   write ? LockMode::exclusive : LockMode::shared);
      ASSERT_TRUE(held);
      ASSERT_EQ(left, right);
      if (!write) continue;
      ++left;
      if (random() % 16 == 0) std::this_thread::sleep_for(300us);
      ++right;
      ++writes;
    }
  });
  EXPECT_EQ(left, writes);
}

TYPED_TEST(SharedStateTest, SharedLocksAreHeldTogether) {
  const auto a = this->world.rank(), b = this->world.rank();
  const auto first = a->lock(range(0, 10), LockMode::shared).value();
  const auto second = b->lock(range(0, 10), LockMode::shared).value();
  EXPECT_TRUE(first && second);
}

TYPED_TEST(SharedStateTest, ReadersThatComeLaterWaitForTheWriter) {
  const auto early = this->world.rank(), writing = this->world.rank(), late = this->world.rank();
  std::atomic<bool> wrote{false}, done{false};
  auto held = early->lock(range(0, 10), LockMode::shared).value();
  std::thread writer([&] {
    const auto mine = writing->lock(range(0, 10), LockMode::exclusive).value();
    wrote = true;
    std::this_thread::sleep_for(20ms);
    done = true;
  });
  std::this_thread::sleep_for(150ms);  // longer than a sleep: it looks again, and waits on
  EXPECT_FALSE(wrote);
  std::thread reader([&] {
    const auto mine = late->lock(range(0, 10), LockMode::shared).value();
    EXPECT_TRUE(done) << "overtook the writer";
  });
  std::this_thread::sleep_for(30ms);
  held.release();
  writer.join();
  reader.join();
}

// A rank's own threads: one waits for a lock that another of them holds and gives back.
TYPED_TEST(SharedStateTest, AThreadThatWaitsDoesNotHinderTheOthers) {
  const auto rank = this->world.rank();
  auto held = rank->lock(range(0, 10), LockMode::exclusive).value();
  std::atomic<bool> got{false};
  std::thread waiter([&] {
    const auto mine = rank->lock(range(5, 10), LockMode::exclusive).value();
    got = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(rank->fetch_and_add(kPointer, 1).value(), 0u);
  EXPECT_FALSE(got);
  held.release();
  waiter.join();
  EXPECT_TRUE(got);
}

TYPED_TEST(SharedStateTest, NoBytesNeedNoLock) {
  const auto rank = this->world.rank();
  const auto all = rank->lock(range(0, 100), LockMode::exclusive).value();
  const auto none = rank->lock(Extents(), LockMode::exclusive).value();
  EXPECT_TRUE(all);
  EXPECT_FALSE(none);
}

TYPED_TEST(SharedStateTest, ALockMovesWithItsHolder) {
  const auto a = this->world.rank(), b = this->world.rank();
  SharedState::Held kept;
  {
    auto held = a->lock(range(0, 10), LockMode::exclusive).value();
    kept = std::move(held);
    EXPECT_FALSE(held);
  }
  EXPECT_TRUE(kept);
  kept = SharedState::Held();
  EXPECT_TRUE(b->lock(range(0, 10), LockMode::exclusive).value());
}

TYPED_TEST(SharedStateTest, ManyThreadsOfOneRankShareIt) {
  const auto rank = this->world.rank();
  std::vector<std::thread> threads;
  uint64_t plain = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        ASSERT_TRUE(rank->fetch_and_add(kPointer, 1));
        const auto held = rank->lock(range(0, 1), LockMode::exclusive).value();
        ++plain;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(plain, 800u);
  EXPECT_EQ(rank->get(kPointer).value(), 800u);
}

TEST(NodeState, TicketsWrap) {
  NodeWorld world;
  for (auto* word :
       {&world.memory->next_ticket, &world.memory->readers_turn, &world.memory->writers_turn}) {
    *word = UINT32_MAX - 2;
  }
  const auto a = world.rank();
  for (int i = 0; i < 8; ++i) {
    const LockMode mode = i % 2 ? LockMode::shared : LockMode::exclusive;
    ASSERT_TRUE(a->lock(range(0, 1), mode).value());
  }
}

// ---- Only of attributes ----

TEST(AttrState, NothingIsThereBeforeItIsChanged) {
  AttrWorld world;
  const auto a = world.attr_rank(), b = world.attr_rank();
  EXPECT_EQ(a->get(kPointer).value(), 0u);
  ASSERT_TRUE(a->set(kPointer, 0));
  EXPECT_EQ(world.store->values.size(), 0u);
  EXPECT_EQ(a->seen(), 0u);
  EXPECT_EQ(b->fetch_and_add(kPointer, 3).value(), 0u);
  EXPECT_EQ(b->fetch_and_add(Slot(63), 3).value(), 0u);
  EXPECT_EQ(world.store->values.size(), 2u);
  EXPECT_EQ(b->seen(), uint64_t{1} << 63 | 1);
  EXPECT_EQ(a->seen(), 0u);
  a->remove(a->seen() | b->seen());
  EXPECT_EQ(world.store->values.size(), 0u);
}

// By another thread of the rank, while the answer that it is not there is on its way.
TEST(AttrState, WhatIsMadeMeanwhileIsNotGone) {
  AttrWorld world;
  const auto rank = world.attr_rank();
  world.store->on_refusal = [&] { EXPECT_EQ(rank->fetch_and_add(kPointer, 1).value(), 0u); };
  EXPECT_EQ(rank->fetch_and_add(kPointer, 1).value(), 1u);
  EXPECT_EQ(rank->get(kPointer).value(), 2u);
}

TEST(AttrState, WhatIsGoneIsNotZeroAgain) {
  AttrWorld world;
  const auto a = world.attr_rank(), b = world.attr_rank();
  ASSERT_TRUE(a->fetch_and_add(kPointer, 3));
  b->remove(1);
  EXPECT_EQ(a->get(kPointer).error().code(), ESTALE);
  EXPECT_EQ(a->set(kPointer, 0).error().code(), ESTALE);
  EXPECT_EQ(a->fetch_and_add(kPointer, 3).error().code(), ESTALE);
  EXPECT_EQ(a->compare_and_swap(kPointer, 0, 3).error().code(), ESTALE);
}

}  // namespace
}  // namespace forebay::mpiio
