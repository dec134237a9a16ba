// List I/O: random shapes against a byte-by-byte oracle, the number of system calls, large offsets.
#include "store/posix_io.h"

#include <gtest/gtest.h>

#include <cstring>

#include "store/posix_testing.h"

namespace forebay {
namespace {

class PosixIo : public testing::Test {
 protected:
  void SetUp() override { file_ = *rig_.create("data"); }

  Result<Reply> transfer(Op op, Extents file, std::span<std::byte> bytes, Extents shape) {
    Request r{.op = op, .handle = file_.handle, .right = file_.right};
    r.file = std::move(file);
    r.memory = Memory{bytes.data(), std::move(shape)};
    return rig_.call(std::move(r));
  }
  uint64_t calls() { return rig_.counters.get("posix.io_calls").get(); }

  PosixRig rig_;
  Reply file_;
};

// Random pieces with `total` bytes below `size`.
std::vector<Extent> random_list(std::mt19937_64& random, uint64_t total, uint64_t size,
                                bool disjoint) {
  std::vector<Extent> list;
  uint64_t at = 0;
  while (total > 0) {
    const uint64_t n = 1 + random() % std::min<uint64_t>(total, 1 + random() % 3000);
    if (disjoint) {
      at += random() % 3 ? random() % 40 : 0;
    } else {
      at = random() % (size - n);
    }
    list.push_back({Offset(at), Length(n)});
    at += n;
    total -= n;
  }
  return list;
}

TEST_F(PosixIo, RandomListsAgainstAnOracle) {
  std::mt19937_64 random(test_seed());
  constexpr uint64_t kSize = 200'000;
  std::vector<std::byte> oracle(kSize), memory(3 * kSize);
  for (auto& b : memory) b = static_cast<std::byte>(random());
  // So that every byte exists and a read is never short.
  ASSERT_TRUE(rig_.call({.op = Op::resize, .handle = file_.handle, .length = Length(kSize)}));
  for (int round = 0; round < 60; ++round) {
    const uint64_t total = 1 + random() % 20'000;
    const Extents file = *Extents::make(random_list(random, total, kSize, false));
    if (random() % 2) {
      const Extents shape = *Extents::make(random_list(random, total, memory.size(), false));
      auto wrote = transfer(Op::write, file, memory, shape);
      ASSERT_TRUE(wrote) << wrote.error().message();
      ASSERT_EQ(wrote->count, total);
      walk_pairs(file, shape, [&](Extent to, Extent from) {
        std::memcpy(&oracle[to.offset.value], &memory[from.offset.value], to.length.value);
        return true;
      });
    } else {
      // Pieces of memory that overlap would make the result depend on the order of bytes.
      const Extents shape = *Extents::make(random_list(random, total, memory.size(), true));
      auto read = transfer(Op::read, file, memory, shape);
      ASSERT_TRUE(read) << read.error().message();
      ASSERT_EQ(read->count, total);
      walk_pairs(file, shape, [&](Extent from, Extent to) {
        EXPECT_EQ(
            std::memcmp(&oracle[from.offset.value], &memory[to.offset.value], to.length.value), 0);
        return !HasFailure();
      });
      ASSERT_FALSE(HasFailure());
    }
  }
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), kSize);
  EXPECT_EQ(std::memcmp(content.data(), oracle.data(), kSize), 0);
}

TEST_F(PosixIo, AMillionAdjacentBytesAreOneCall) {
  constexpr uint64_t kCount = 1'000'000;
  std::vector<Extent> pieces;
  for (uint64_t i = 0; i < kCount; ++i) pieces.push_back({Offset(10 + i), Length(1)});
  std::vector<std::byte> bytes(kCount, std::byte{'x'});
  const uint64_t before = calls();
  auto wrote =
      transfer(Op::write, *Extents::make(pieces), bytes, Extents({Offset(0), Length(kCount)}));
  ASSERT_TRUE(wrote);
  EXPECT_EQ(wrote->count, kCount);
  EXPECT_EQ(calls() - before, 1u);
  EXPECT_EQ(rig_.getattr(file_.handle)->attr.size, kCount + 10);
}

TEST_F(PosixIo, AMillionScatteredPiecesOfMemoryTakeAThousandCalls) {
  constexpr uint64_t kCount = 1'000'000;
  std::vector<std::byte> bytes(2 * kCount);
  for (uint64_t i = 0; i < kCount; ++i) bytes[2 * i] = static_cast<std::byte>(i * 7);
  const Extents shape = *Extents::make({{Offset(0), Length(1)}}, {{kCount, 2}});
  const uint64_t before = calls();
  auto wrote = transfer(Op::write, Extents({Offset(0), Length(kCount)}), bytes, shape);
  ASSERT_TRUE(wrote);
  EXPECT_LE(calls() - before, kCount / 1024 + 2);
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), kCount);
  for (uint64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(static_cast<std::byte>(content[i]), static_cast<std::byte>(i * 7)) << i;
}

TEST_F(PosixIo, AMillionScatteredBytesOfTheFile) {
  constexpr uint64_t kCount = 1'000'000;
  std::vector<std::byte> bytes(kCount, std::byte{'y'});
  std::vector<Extent> pieces;
  for (uint64_t i = 0; i < kCount; ++i) pieces.push_back({Offset(2 * i), Length(1)});
  auto wrote =
      transfer(Op::write, *Extents::make(pieces), bytes, Extents({Offset(0), Length(kCount)}));
  ASSERT_TRUE(wrote);
  EXPECT_EQ(rig_.getattr(file_.handle)->attr.size, 2 * kCount - 1);
}

TEST_F(PosixIo, LargeTransfersGoInSteps) {
  std::vector<std::byte> bytes(5 * posix::kMostBytes, std::byte{'z'});
  const Extents all({Offset(0), Length(bytes.size())});
  const uint64_t before = calls();
  ASSERT_TRUE(transfer(Op::write, all, bytes, all));
  EXPECT_EQ(calls() - before, 5u);
  std::vector<std::byte> back(bytes.size());
  EXPECT_EQ(transfer(Op::read, all, back, all)->count, bytes.size());
  EXPECT_EQ(back, bytes);
}

TEST_F(PosixIo, ReadsStopAtTheFirstByteBeyondTheEnd) {
  ASSERT_TRUE(rig_.write(file_.handle, file_.right, 0, "0123456789"));
  std::vector<std::byte> bytes(12, std::byte{'-'});
  const Extents file =
      *Extents::make({{Offset(0), Length(4)}, {Offset(8), Length(4)}, {Offset(2), Length(4)}});
  auto read = transfer(Op::read, file, bytes, Extents({Offset(0), Length(12)}));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->count, 6u);
  EXPECT_EQ(std::memcmp(bytes.data(), "012389", 6), 0);
}

// Memory that begins anywhere in a page: some of it is read by way of a buffer.
TEST_F(PosixIo, ReadsIntoMemoryOfAnyAlignment) {
  std::mt19937_64 random(test_seed());
  constexpr uint64_t kSize = 700'000;
  std::vector<std::byte> oracle(kSize), memory(kSize + 8192);
  for (auto& b : oracle) b = static_cast<std::byte>(random());
  ASSERT_TRUE(transfer(Op::write, Extents(ext(0, kSize)), oracle, Extents(ext(0, kSize))));
  for (uint64_t into = 0; into < 70; ++into) {
    const uint64_t from = random() % 2 ? random() % kSize : random() % 8 * 4096;
    const uint64_t wanted = 1 + random() % kSize, there = std::min(wanted, kSize - from);
    auto* page = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) /
                                              4096 * 4096);
    std::fill(memory.begin(), memory.end(), std::byte{0x5a});
    auto read = transfer(Op::read, Extents(ext(from, wanted)), {page, wanted + into},
                         Extents(ext(into, wanted)));
    ASSERT_TRUE(read.has_value());
    ASSERT_EQ(read->count, there);
    ASSERT_EQ(std::memcmp(page + into, oracle.data() + from, there), 0);
    ASSERT_TRUE(std::all_of(page + into + there, memory.data() + memory.size(),
                            [](std::byte b) { return b == std::byte{0x5a}; }));
  }
}

TEST_F(PosixIo, FilesBeyond4GiBAndHoles) {
  constexpr uint64_t kFar = 5_GiB;
  ASSERT_TRUE(rig_.write(file_.handle, file_.right, kFar, "far"));
  EXPECT_EQ(*rig_.read(file_.handle, file_.right, kFar - 2, 10), std::string("\0\0far", 5));
  EXPECT_EQ(*rig_.read(file_.handle, file_.right, 4_GiB, 4), std::string(4, '\0'));
  const Attr attr = rig_.getattr(file_.handle)->attr;
  EXPECT_EQ(attr.size, kFar + 3);
  EXPECT_LT(attr.allocated, 1_MiB);
}

TEST_F(PosixIo, SpaceIsReservedPunchedAndZeroed) {
  const auto allocate = [&](uint64_t offset, uint64_t length, uint32_t flags) {
    return rig_.call({.op = Op::fallocate,
                      .flags = flags,
                      .handle = file_.handle,
                      .right = file_.right,
                      .offset = Offset(offset),
                      .length = Length(length)});
  };
  const auto attr = [&] { return rig_.getattr(file_.handle)->attr; };
  auto first = allocate(0, 64_KiB, kFlagKeepSize);
  if (code_of(first) == EOPNOTSUPP) GTEST_SKIP() << "no fallocate on this file system";
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(attr().size, 0u);
  EXPECT_GE(attr().allocated, 64_KiB);
  ASSERT_TRUE(allocate(0, 64_KiB, 0));
  EXPECT_EQ(attr().size, 64_KiB);
  ASSERT_TRUE(rig_.write(file_.handle, file_.right, 0, std::string(64_KiB, 'x')));
  ASSERT_TRUE(allocate(4_KiB, 8_KiB, kFlagPunchHole));
  EXPECT_EQ(*rig_.read(file_.handle, file_.right, 4_KiB - 1, 3), std::string("x\0\0", 3));
  EXPECT_LE(attr().allocated, 60_KiB);
  auto zeroed = allocate(32_KiB, 8_KiB, kFlagZeroRange);
  ASSERT_TRUE(zeroed || code_of(zeroed) == EOPNOTSUPP);  // tmpfs has none
  if (zeroed) {
    EXPECT_EQ(*rig_.read(file_.handle, file_.right, 40_KiB - 1, 2), std::string("\0x", 2));
  }
}

TEST_F(PosixIo, NothingIsNothing) {
  auto wrote = transfer(Op::write, Extents(), {}, Extents());
  ASSERT_TRUE(wrote);
  EXPECT_EQ(wrote->count, 0u);
  EXPECT_EQ(transfer(Op::read, Extents(), {}, Extents())->count, 0u);
}

// Each piece of memory may be somebody's write, which is to be there as a whole or not at all for
// whoever writes by other calls: what goes through a buffer is cut between them.
TEST_F(PosixIo, PiecesAreNotCutInTwo) {
  std::mt19937_64 random(test_seed());
  std::vector<Extent> shape;
  uint64_t at = 0;
  const auto piece = [&](uint64_t length) {
    shape.push_back({Offset(at), Length(length)});
    at += length + 1;
  };
  piece(150_KiB);
  for (int i = 0; i < 3000; ++i) piece(1);
  piece(150_KiB);
  piece(150_KiB);
  piece(300_KiB);  // longer than the buffer
  for (int i = 0; i < 10; ++i) piece(1);
  std::vector<std::byte> memory(at);
  for (auto& b : memory) b = static_cast<std::byte>(random());
  const Extents whole = *Extents::make(shape);
  const uint64_t total = whole.total().value;
  const uint64_t before = calls();
  ASSERT_TRUE(transfer(Op::write, Extents({Offset(5), Length(total)}), memory, whole));
  EXPECT_EQ(calls() - before, 5u);
  std::vector<std::byte> want(total), got(total);
  copy_out(Memory{memory.data(), whole}, want);
  ASSERT_TRUE(transfer(Op::read, Extents({Offset(5), Length(total)}), got,
                       Extents({Offset(0), Length(total)})));
  EXPECT_TRUE(got == want);
}

}  // namespace
}  // namespace forebay
