#include "client/lent_memory.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace forebay {
namespace {

constexpr uint64_t kPage = SharedPages::kPage;

Request on(Op op, std::byte* at, uint64_t length) {
  Request r;
  r.op = op;
  r.memory = Memory::of(std::span(at, length));
  return r;
}

class LentMemoryTest : public ::testing::Test {
 protected:
  std::shared_ptr<LentMemory> lent_ = LentMemory::create(64 * kPage).value();
};

TEST_F(LentMemoryTest, GivesZeroedPagesAndTakesThemBack) {
  std::byte* const a = lent_->allocate(100);
  std::byte* const b = lent_->allocate(3 * kPage);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % kPage, 0u);
  std::memset(a, 7, kPage);
  EXPECT_TRUE(lent_->release(a));
  EXPECT_FALSE(lent_->release(a)) << "twice";
  EXPECT_FALSE(lent_->release(b + 1)) << "not where it begins";
  std::byte* const again = lent_->allocate(kPage);
  EXPECT_EQ(again, a);
  EXPECT_EQ(again[0], std::byte(0));
  EXPECT_EQ(lent_->allocate(64 * kPage), nullptr) << "more than there is";
  EXPECT_EQ(lent_->allocate(SIZE_MAX), nullptr);
}

TEST_F(LentMemoryTest, KnowsWhatItCanLend) {
  std::byte* const a = lent_->allocate(4 * kPage);
  std::byte other[16];
  const auto offset = static_cast<uint64_t>(a - lent_->pages()->bytes().data());
  EXPECT_EQ(lent_->place_of(on(Op::write, a + 5, 10)), offset + 5);
  EXPECT_EQ(lent_->place_of(on(Op::read, a + kPage, 2 * kPage)), offset + kPage);
  EXPECT_FALSE(lent_->place_of(on(Op::read, a + 5, 10))) << "a read is lent whole pages";
  EXPECT_FALSE(lent_->place_of(on(Op::write, other, 16)));
  EXPECT_FALSE(lent_->place_of(on(Op::write, a, 65 * kPage))) << "it ends outside";
  Request scattered = on(Op::write, a, 100);
  scattered.memory.shape =
      Extents::make({{Offset(0), Length(10)}, {Offset(50), Length(10)}}).value();
  EXPECT_FALSE(lent_->place_of(scattered));
}

TEST_F(LentMemoryTest, WhatIsDetachedKeepsItsBytesAndIsLentNoMore) {
  std::byte* const a = lent_->allocate(4 * kPage);
  std::memset(a, 1, 4 * kPage);
  auto server =
      SharedPages::adopt(Fd(::dup(lent_->pages()->descriptor())), lent_->pages()->bytes().size())
          .value();
  std::byte* const seen = server->bytes().data() + (a - lent_->pages()->bytes().data());
  lent_->detach(on(Op::read, a + kPage, kPage).memory);
  std::memset(seen, 9, 4 * kPage);  // a server that is still at it
  EXPECT_EQ(a[0], std::byte(9));
  EXPECT_EQ(a[kPage], std::byte(1));
  EXPECT_EQ(a[2 * kPage - 1], std::byte(1));
  EXPECT_EQ(a[2 * kPage], std::byte(9));
  EXPECT_FALSE(lent_->place_of(on(Op::read, a + kPage, kPage)));
  EXPECT_FALSE(lent_->place_of(on(Op::write, a + 100, 2 * kPage)));
  EXPECT_TRUE(lent_->place_of(on(Op::read, a, kPage)));
  // Its page is not given again; the others are.
  EXPECT_TRUE(lent_->release(a));
  std::byte* const next = lent_->allocate(4 * kPage);
  ASSERT_TRUE(next);
  EXPECT_TRUE(next >= a + 2 * kPage || next + 4 * kPage <= a + kPage);
}

TEST_F(LentMemoryTest, AProcessThatMayNotMakeLargeFilesGoesWithout) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit most{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &most);
    const auto lent = LentMemory::create(1_GiB);
    ::_exit(!lent && lent.error().code() == EFBIG ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Against an oracle: what is given never overlaps, and keeps what was put into it.
TEST_F(LentMemoryTest, RandomUse) {
  const char* given = std::getenv("FOREBAY_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device()();
  SCOPED_TRACE("FOREBAY_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  struct Piece {
    std::byte* at;
    size_t size;
    std::byte mark;
  };
  std::vector<Piece> live;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 2 == 0) {
      const size_t size = 1 + random() % (5 * kPage);
      if (std::byte* const at = lent_->allocate(size)) {
        const auto zero = [](std::byte b) { return b == std::byte(0); };
        ASSERT_TRUE(std::all_of(at, at + size, zero));
        live.push_back({at, size, std::byte(1 + random() % 255)});
        std::memset(at, static_cast<int>(live.back().mark), size);
      }
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const Piece p = live.back();
      live.pop_back();
      ASSERT_TRUE(std::all_of(p.at, p.at + p.size, [&](std::byte b) { return b == p.mark; }));
      ASSERT_TRUE(lent_->release(p.at));
    }
  }
}

}  // namespace
}  // namespace forebay
