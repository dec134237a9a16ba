#include "core/buffer_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "core/testing.h"
#include "core/types.h"

namespace forebay {
namespace {

constexpr uint64_t kSize = 64_KiB;
using Charge = BufferPool::Charge;

std::vector<Buffer> take_all(BufferPool& pool) {
  std::vector<Buffer> all;
  while (Buffer b = pool.try_take()) all.push_back(std::move(b));
  return all;
}

TEST(BufferPool, RoundsToWholePagesAndBuffers) {
  BufferPool small(1, 1);
  EXPECT_EQ(small.capacity(), 4u);
  EXPECT_EQ(small.buffer_size() % 4096, 0u);
  BufferPool pool(10 * kSize + 17, kSize);
  EXPECT_EQ(pool.capacity(), 10u);
}

TEST(BufferPool, HandsOutEveryBufferOnce) {
  BufferPool pool(8 * kSize, kSize);
  std::vector<Buffer> all = take_all(pool);
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(pool.in_use(), 8u);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].bytes().size(), kSize);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(all[i].bytes().data()) % 4096, 0u);
    std::memset(all[i].bytes().data(), static_cast<int>(i), kSize);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].bytes().front(), std::byte(i));
    ASSERT_EQ(all[i].bytes().back(), std::byte(i));
  }
  const std::byte* last = all.back().bytes().data();
  all.back().release();
  EXPECT_FALSE(all.back());
  EXPECT_EQ(pool.try_take().bytes().data(), last) << "the warmest buffer goes first";
  all.clear();
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(BufferPool, ServesWaitersInOrderAndLetsNobodyOvertake) {
  BufferPool pool(4 * kSize, kSize);
  std::vector<Buffer> all = take_all(pool), got;
  std::vector<int> order;
  const auto waits = [&](int n) {
    return pool.take([&, n](Buffer b) {
      order.push_back(n);
      got.push_back(std::move(b));
    });
  };
  EXPECT_NE(waits(1), 0u);
  const uint64_t second = waits(2);
  EXPECT_NE(waits(3), 0u);
  EXPECT_TRUE(pool.forget(second));
  EXPECT_FALSE(pool.forget(second));
  all.pop_back();
  EXPECT_EQ(order, std::vector{1});
  EXPECT_FALSE(pool.try_take()) << "somebody waits";
  all.pop_back();
  EXPECT_EQ(order, (std::vector{1, 3}));
  all.pop_back();
  EXPECT_EQ(waits(4), 0u) << "one is free: at once";
  EXPECT_EQ(order, (std::vector{1, 3, 4}));
}

TEST(BufferPool, AChainOfWaitersNeedsNoStack) {
  BufferPool pool(4 * kSize, kSize);
  std::vector<Buffer> all = take_all(pool);
  int served = 0, depth = 0, deepest = 0;
  for (int i = 0; i < 50000; ++i) {
    pool.take([&](Buffer b) {
      deepest = std::max(deepest, ++depth);
      b.release();  // which frees one for the next in the queue
      ++served;
      --depth;
    });
  }
  all.pop_back();
  EXPECT_EQ(served, 50000);
  EXPECT_EQ(deepest, 1);
}

TEST(BufferPool, ACallbackMayTakeAgain) {
  BufferPool pool(4 * kSize, kSize);
  std::vector<Buffer> all = take_all(pool);
  std::vector<int> order;
  pool.take([&](Buffer) {
    order.push_back(1);
    pool.take([&](Buffer) { order.push_back(3); });
  });
  pool.take([&](Buffer) { order.push_back(2); });
  all.pop_back();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST(BufferPool, ChargesTakeBuffersOutOfUse) {
  BufferPool pool(16 * kSize, kSize);
  EXPECT_EQ(pool.max_charge(), 4 * kSize);
  Charge held;
  EXPECT_EQ(pool.charge(kSize + 1, [&](Charge c) { held = std::move(c); }), 0u);
  EXPECT_EQ(held.bytes(), 2 * kSize);
  EXPECT_EQ(pool.in_use(), 2u);
  EXPECT_EQ(take_all(pool).size(), 14u);
  held.release();
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(BufferPool, ChargesTakeHalfOfThePoolAtMostAndStandInNobodysWay) {
  BufferPool pool(16 * kSize, kSize);
  std::vector<std::pair<int, Charge>> held;
  const auto charge = [&](int n, uint64_t buffers) {
    return pool.charge(buffers * kSize, [&, n](Charge c) { held.emplace_back(n, std::move(c)); });
  };
  EXPECT_EQ(charge(1, 4), 0u);
  EXPECT_EQ(charge(2, 3), 0u);
  const uint64_t third = charge(3, 2);  // 9 of 16
  EXPECT_NE(third, 0u);
  EXPECT_NE(charge(4, 1), 0u) << "would fit, but waits behind the third";
  EXPECT_EQ(take_all(pool).size(), 9u) << "data buffers are free for all";
  EXPECT_TRUE(pool.forget(third));
  ASSERT_EQ(held.size(), 3u);
  EXPECT_EQ(held[2].first, 4);
  EXPECT_NE(charge(5, 4), 0u);
  Charge first = std::move(held[0].second);
  first.release();
  ASSERT_EQ(held.size(), 4u);
  EXPECT_EQ(held[3].first, 5);
  EXPECT_EQ(held[3].second.bytes(), 4 * kSize);
}

TEST(BufferPool, AnAdmittedChargeWaitsItsTurnForBuffers) {
  BufferPool pool(16 * kSize, kSize);
  std::vector<Buffer> all = take_all(pool), got;
  std::optional<Charge> charged;
  const uint64_t ticket = pool.charge(3 * kSize, [&](Charge c) { charged = std::move(c); });
  ASSERT_NE(ticket, 0u);
  ASSERT_NE(pool.take([&](Buffer b) { got.push_back(std::move(b)); }), 0u);
  all.resize(14);
  EXPECT_FALSE(charged);
  EXPECT_TRUE(got.empty()) << "it came later than the charge";
  all.resize(13);
  EXPECT_TRUE(charged);
  EXPECT_TRUE(got.empty());
  all.resize(12);
  EXPECT_EQ(got.size(), 1u);
}

TEST(BufferPool, AForgottenChargeFreesItsPlaceAndItsShare) {
  BufferPool pool(16 * kSize, kSize);
  std::vector<Buffer> all = take_all(pool), got;
  uint64_t tickets[2];
  for (uint64_t& t : tickets) {
    t = pool.charge(4 * kSize, [](Charge) { FAIL() << "forgotten"; });
  }
  pool.take([&](Buffer b) { got.push_back(std::move(b)); });
  std::optional<Charge> last;
  pool.charge(4 * kSize, [&](Charge c) { last = std::move(c); });
  all.resize(15);
  EXPECT_TRUE(got.empty());
  EXPECT_TRUE(pool.forget(tickets[0]));
  EXPECT_TRUE(pool.forget(tickets[1]));
  EXPECT_EQ(got.size(), 1u) << "those behind get their turn";
  all.clear();
  EXPECT_TRUE(last);
}

uint64_t resident(std::span<std::byte> bytes) {
  std::vector<unsigned char> pages(bytes.size() / 4096);
  EXPECT_EQ(::mincore(bytes.data(), bytes.size(), pages.data()), 0);
  return static_cast<uint64_t>(
      std::count_if(pages.begin(), pages.end(), [](auto p) { return p & 1; }));
}

TEST(BufferPool, ResidentOnlyWhereTouchedAndNotWhereCharged) {
  if (::sysconf(_SC_PAGESIZE) != 4096) GTEST_SKIP() << "counts pages of 4 KiB";
  BufferPool pool(1_GiB, 1_MiB);
  std::span<std::byte> where[2];
  {
    Buffer a = pool.try_take(), b = pool.try_take();
    EXPECT_EQ(resident(b.bytes()), 0u);
    std::memset(a.bytes().data(), 1, a.bytes().size());
    std::memset(b.bytes().data(), 1, b.bytes().size());
    where[0] = a.bytes();
    where[1] = b.bytes();
    EXPECT_EQ(resident(where[0]), 256u);
  }
  EXPECT_EQ(resident(where[0]), 256u) << "free buffers stay warm";
  Charge charge;
  pool.charge(2_MiB, [&](Charge c) { charge = std::move(c); });
  EXPECT_EQ(resident(where[0]), 0u);
  EXPECT_EQ(resident(where[1]), 0u);
}

TEST(BufferPoolDeath, MustGetEverythingBack) {
  EXPECT_DEATH(
      {
        auto* pool = new BufferPool(4 * kSize, kSize);
        Buffer b = pool->try_take();
        delete pool;
      },
      "still out");
  EXPECT_DEATH(
      {
        BufferPool pool(16 * kSize, kSize);
        pool.charge(5 * kSize, [](Charge) {});
      },
      "max_charge");
}

// Many threads take, charge, wait, forget and give back. Each request ends exactly once (served or
// forgotten), a buffer is never in two hands, and nothing is left.
class Storm {
 public:
  explicit Storm(uint64_t seed) : seed_(seed) {}

  void run() {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) threads.emplace_back([this, t] { work(t); });
    for (auto& t : threads) t.join();
    EXPECT_EQ(ended_, kThreads * kRounds);
    EXPECT_EQ(pool_.in_use(), 0u);
  }

 private:
  static constexpr uint64_t kThreads = 4, kRounds = 3000;

  void use(Buffer b) {
    // Not atomic on purpose: a buffer in two hands is a race that ThreadSanitizer sees.
    auto* mark = reinterpret_cast<uint64_t*>(b.bytes().data());
    const uint64_t before = *mark;
    *mark = before + 1;
    ended_.fetch_add(1);
    EXPECT_EQ(*mark, before + 1);
  }

  void work(uint64_t thread) {
    std::mt19937_64 random(seed_ + thread);
    for (uint64_t i = 0; i < kRounds; ++i) {
      uint64_t ticket = 0;
      if (random() % 4 == 0) {
        ticket =
            pool_.charge(random() % pool_.max_charge(), [this](Charge) { ended_.fetch_add(1); });
      } else {
        std::optional<Buffer> kept = pool_.try_take();
        ticket = pool_.take([this](Buffer b) { use(std::move(b)); });
      }
      if (ticket != 0 && random() % 2 == 0 && pool_.forget(ticket)) ended_.fetch_add(1);
    }
  }

  const uint64_t seed_;
  BufferPool pool_{8 * 4096, 4096};
  std::atomic<uint64_t> ended_{0};
};

TEST(BufferPool, StandsAStormOfThreads) {
  Storm(test_seed()).run();
}

}  // namespace
}  // namespace forebay
