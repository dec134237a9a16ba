// Memory that processes share, and what ranks do in it: gathering, and windows of a collective
// call.
#include "mpiio/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/testing.h"
#include "mpiio/area_pool.h"
#include "mpiio/gathering.h"
#include "mpiio/node_records.h"
#include "mpiio/window_area.h"

namespace forebay::mpiio {
namespace {

const auto kNothing = [] {};

// Runs fn(rank) in as many threads.
void on_ranks(int ranks, const std::function<void(int)>& fn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(fn, rank);
  for (std::thread& thread : threads) thread.join();
}

// To exceed the limit on files is a signal, of which one dies.
TEST(SharedMemory, StaysBelowTheLimitOnFiles) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool good = SharedMemory::make(90'000) && !SharedMemory::make(100'000) &&
                      SharedMemory::make(100'000, true);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedMemory, AnotherProcessFindsIt) {
  auto memory = SharedMemory::make(10'000);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 4096, 0u);
  std::memcpy(memory->data(), "hello", 6);
  const pid_t child = fork();
  if (child == 0) {
    auto found = SharedMemory::attach(memory->place());
    const bool good =
        found && std::memcmp(found->data(), "hello", 6) == 0 && SharedMemory::near(memory->place());
    if (good) std::memcpy(found->data() + 9'000, "there", 6);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::memcmp(memory->data() + 9'000, "there", 6), 0);
}

TEST(SharedMemory, WhatIsNotThereIsAnError) {
  auto memory = SharedMemory::make(100);
  ASSERT_TRUE(memory.has_value());
  auto other = memory->place();
  other.mark += 1;
  EXPECT_EQ(SharedMemory::attach(other).error().code(), EPROTO);
  other.descriptor = 9999;
  EXPECT_FALSE(SharedMemory::near(other) && SharedMemory::attach(other).has_value());
  other.node[0] = '?';
  EXPECT_FALSE(SharedMemory::near(other));
}

TEST(Gathering, EveryRankSeesAllInEveryTurn) {
  constexpr int kRanks = 5, kTurns = 2000;
  alignas(64) static std::array<std::byte, 64 * 1024> space{};
  ASSERT_LE(Gathering::space(kRanks), space.size());
  space.fill(std::byte(0));
  on_ranks(kRanks, [&](int rank) {
    Gathering gathering(space.data(), rank, kRanks);
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::array<int, 2> mine = {rank, turn};
      std::array<std::array<int, 2>, kRanks> all{};
      gathering.gather(&mine, sizeof mine, all.data(), kNothing);
      for (int other = 0; other < kRanks; ++other)
        ASSERT_EQ(all[static_cast<size_t>(other)], (std::array<int, 2>{other, turn}));
    }
  });
}

// Turns of all kinds, in any order: one rank acts, after all have come and before any goes on.
TEST(Gathering, OneActsForAll) {
  constexpr int kMembers = 5, kTurns = 3000;
  alignas(64) static std::array<std::byte, 64 * 1024> space{};
  space.fill(std::byte(0));
  std::array<int, kMembers> acts{};
  const uint64_t seed = test_seed();
  on_ranks(kMembers, [&](int rank) {
    Gathering gathering(space.data(), rank, kMembers);
    std::mt19937_64 random(seed);  // the same for all
    for (int turn = 0; turn < kTurns; ++turn) {
      const int mine = rank * kTurns + turn;
      std::array<int, kMembers> all{};
      const auto kind = random() % 3;
      if (kind == 0) {
        gathering.gather(&mine, sizeof mine, all.data(), kNothing);
      } else {
        const auto act = [&] {
          int sum = 0;
          for (const int one : all) sum += one;
          ++acts[static_cast<size_t>(rank)];
          return std::array<int, 2>{turn, sum};
        };
        const int before = acts[static_cast<size_t>(rank)];
        const auto told =
            kind == 1 ? gathering.gather(&mine, sizeof mine, all.data(), act, kNothing)
                      : gathering.gather_at_first(&mine, sizeof mine, all.data(), act, kNothing);
        if (kind == 2) {
          ASSERT_EQ(acts[static_cast<size_t>(rank)] - before, rank == 0 ? 1 : 0);
        }
        int sum = 0;
        for (int other = 0; other < kMembers; ++other) sum += other * kTurns + turn;
        ASSERT_EQ(told, (std::array<int, 2>{turn, sum}));
      }
      for (int other = 0; other < kMembers; ++other)
        ASSERT_EQ(all[static_cast<size_t>(other)], other * kTurns + turn);
    }
  });
  EXPECT_GT(std::accumulate(acts.begin(), acts.end(), 0), kTurns / 2);
}

TEST(NodeRecords, TouchingOnesAreOneCallAndFailAlone) {
  std::array<std::byte, 3 * NodeRecords::kMostBytes> space{};
  const NodeRecords records(space.data());
  const std::vector<NodeRecords::Record> all = {{Offset(10), Length(5), records.buffer(0)},
                                                {Offset(15), Length(7), records.buffer(1)},
                                                {Offset(30), Length(1), records.buffer(2)}};
  std::vector<Extent> calls;
  uint64_t full = 1000;  // there is no room from here on
  const auto write = [&](const Extents& file, const Extents& memory) -> Result<uint64_t> {
    EXPECT_EQ(file.total(), memory.total());
    calls.push_back(file.bounds());
    if (file.bounds().end().value > full) return Error(ENOSPC);
    return file.total().value;
  };
  EXPECT_EQ(NodeRecords::write(all, write), 0);
  EXPECT_EQ(calls, (std::vector<Extent>{ext(10, 12), ext(30, 1)}));
  calls.clear();
  full = 20;
  EXPECT_EQ(NodeRecords::write(all, write), ENOSPC);
  EXPECT_EQ(calls, (std::vector<Extent>{ext(10, 12), ext(10, 5), ext(15, 7), ext(30, 1)}));
}

// What the tests of windows do.
class Windows {
 public:
  static constexpr uint32_t kRanks = 4, kWindows = 500;
  Windows() : area_(*WindowArea::make({.buffer = kRanks * 8, .runs = 4})) {}

  // Calls visit(area, rank, window) for each window, on each rank; rank 0 plans ahead.
  template <class Visit>
  void go(Visit&& visit) {
    on_ranks(kRanks, [&](int rank) {
      for (uint32_t n = 0; rank == 0 && n < WindowArea::kAhead; ++n) plan(n);
      for (uint32_t n = 0; n < kWindows; ++n) {
        area_.enter(n, kNothing);
        if (rank == 0 && n + WindowArea::kAhead < kWindows) plan(n + WindowArea::kAhead);
        const auto seen = area_.see(n);
        ASSERT_EQ(seen.runs.size(), 1u);
        ASSERT_EQ(seen.runs[0].offset, Offset(n * 100));
        ASSERT_EQ(seen.about.last, n + 1 == kWindows);
        visit(area_, static_cast<uint64_t>(rank), n);
      }
    });
  }

 private:
  void plan(uint32_t n) {
    const std::vector<Extent> runs = {ext(n * 100, kRanks * 8)};
    area_.plan(runs, {.bytes = kRanks * 8, .ranks = kRanks, .last = n + 1 == kWindows});
  }
  WindowArea area_;
};

// All write their share of each window, and the last of them sees every byte of it.
TEST(WindowArea, WindowsAreWholeWhenAllHaveLeft) {
  std::atomic<uint32_t> moved = 0;
  Windows().go([&](WindowArea& area, uint64_t rank, uint32_t n) {
    const uint64_t value = n * 10ull + rank;
    const bool alone = area.others_have_left(n);
    std::memcpy(area.see(n).buffer + rank * 8, &value, sizeof value);
    const bool last = area.leave(n);
    ASSERT_TRUE(last || !alone);
    if (!last) return;
    for (uint64_t other = 0; other < Windows::kRanks; ++other) {
      uint64_t found = 0;
      std::memcpy(&found, area.buffer(n) + other * 8, sizeof found);
      ASSERT_EQ(found, n * 10ull + other);
    }
    ASSERT_EQ(moved.fetch_add(1), n);
    area.release(n);
  });
  EXPECT_EQ(moved.load(), Windows::kWindows);
}

// One of them fills a window, whoever it is, and all see what it has put there.
TEST(WindowArea, OneFillsAWindowForAll) {
  std::atomic<uint32_t> taken = 0;
  Windows().go([&](WindowArea& area, uint64_t rank, uint32_t n) {
    if (area.take(n)) {
      std::memset(area.buffer(n), static_cast<int>(n % 251), Windows::kRanks * 8);
      ASSERT_EQ(taken.fetch_add(1), n);
      area.filled(n, n);
    }
    area.wait_until_filled(n, kNothing);
    ASSERT_EQ(area.see(n).there, n);
    ASSERT_EQ(area.buffer(n)[rank * 8 + n % 8], static_cast<std::byte>(n % 251));
    if (area.leave(n)) area.release(n);
  });
  EXPECT_EQ(taken.load(), Windows::kWindows);
}

// Two files one after the other: the second has the windows of the first, whose numbers go on, and
// whoever attached before knows them again.
TEST(AreaPool, AreasServeTheNextFileToo) {
  constexpr WindowArea::Shape kShape = {.buffer = 4096, .runs = 4};
  AreaPool owner, guest;
  SharedMemory::Place place;
  const std::byte* seen_at = nullptr;
  for (uint32_t file = 0; file < 3; ++file) {
    auto area = owner.make(kShape);
    ASSERT_TRUE(area.has_value());
    ASSERT_TRUE(file == 0 || area->place().mark == place.mark);
    place = area->place();
    const uint32_t first = area->planned();
    EXPECT_EQ(first, 3 * file);
    auto attached = guest.attach(place);
    ASSERT_TRUE(attached.has_value());
    for (uint32_t n = first; n < first + 3; ++n) {
      area->plan(std::vector<Extent>{ext(n, 1)}, {.bytes = 1, .ranks = 1});
      attached->enter(n, kNothing);
      const auto seen = attached->see(n);
      ASSERT_EQ(seen.runs[0].offset, Offset(n));
      EXPECT_TRUE(file == 0 || n > first || seen.buffer == seen_at);
      seen_at = attached->buffer(n + 1);
      ASSERT_TRUE(attached->leave(n));
      area->wait_for_all(n, kNothing);
      area->release(n);
    }
    owner.give_back(std::move(*area));
    guest.give_back(std::move(*attached));
  }
}

TEST(AreaPool, AnAreaInUseIsNobodyElses) {
  AreaPool pool;
  auto one = pool.make({4096, 4}), another = pool.make({4096, 4});
  ASSERT_TRUE(one && another);
  const auto mark = one->place().mark;
  EXPECT_NE(mark, another->place().mark);
  pool.give_back(std::move(*one));
  auto larger = pool.make({8192, 4}), same = pool.make({4096, 4});
  ASSERT_TRUE(larger && same);
  EXPECT_NE(larger->place().mark, mark);
  EXPECT_EQ(same->place().mark, mark);
}

// What was attached to is nobody's to offer; large areas and the oldest are not kept.
TEST(AreaPool, IsBounded) {
  AreaPool owner, pool;
  auto others = owner.make({4096, 4});
  ASSERT_TRUE(others.has_value());
  auto attached = pool.attach(others->place());
  ASSERT_TRUE(attached.has_value());
  pool.give_back(std::move(*attached));
  auto own = pool.make({4096, 4});
  ASSERT_TRUE(own.has_value());
  EXPECT_NE(own->place().mark, others->place().mark);
  auto large = pool.make({AreaPool::kMostBytes, 4});
  ASSERT_TRUE(large.has_value());
  const auto mark = large->place().mark, oldest = own->place().mark;
  pool.give_back(std::move(*large));
  EXPECT_NE(pool.make({AreaPool::kMostBytes, 4})->place().mark, mark);
  pool.give_back(std::move(*own));
  for (uint32_t i = 0; i < AreaPool::kMostAreas; ++i)
    pool.give_back(std::move(*WindowArea::make({4096, 5 + i})));
  EXPECT_NE(pool.make({4096, 4})->place().mark, oldest);
}

}  // namespace
}  // namespace forebay::mpiio
