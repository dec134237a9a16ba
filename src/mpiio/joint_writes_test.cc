// Joint writes against plain ones: every byte where it belongs, and no other one touched.
#include "mpiio/joint_writes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "core/testing.h"
#include "mpiio/realm_cache_testing.h"

namespace forebay::mpiio {
namespace {

plan::TiledMap view_of(uint64_t displacement, const std::vector<plan::TypeMap::Block>& blocks,
                       int64_t extent) {
  const auto byte = plan::TypeMap::bytes(1);
  const auto type = plan::TypeMap::resized(*plan::TypeMap::indexed(blocks, *byte), 0, extent);
  return *plan::TiledMap::view(Offset(displacement), *type);
}

plan::TiledMap memory_of(const Bytes& bytes) {
  const auto type = plan::TypeMap::bytes(static_cast<int64_t>(bytes.size()));
  return *plan::TiledMap::buffer(bytes.data(), 1, *type);
}

class JointWritesTest : public testing::Test {
 protected:
  static constexpr int kRanks = 5;

  void SetUp() override {
    for (int rank = 0; rank < kRanks; ++rank)
      joints_.push_back(
          std::make_unique<JointWrites>(static_cast<std::byte*>(space_.at()), rank, kRanks));
  }
  void on_ranks(const std::function<void(int)>& fn) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(fn, rank);
    for (std::thread& thread : threads) thread.join();
  }
  // As a rank does it: together with others, or else alone.
  void write(int rank, const plan::ViewPart& part, const Bytes& bytes) {
    const auto store = [&](Extents file, Extents memory) -> Result<uint64_t> {
      largest_ = std::max(largest_.load(), file.total().value / file.pieces());
      const uint64_t total = file.total().value;
      if (fails_) return Error(ENOSPC);
      if (auto ok = file_.write(std::move(file), std::move(memory)); !ok) return ok.error();
      return total;
    };
    if (joints_[static_cast<size_t>(rank)]->write(part, memory_of(bytes), store)) {
      ++joint_;
      return;
    }
    plan::TransferCursor cursor(part.view, part.from, memory_of(bytes), Length(), part.length);
    while (!cursor.done()) {
      auto both = cursor.next(Length(kMaxOffset), 1000);
      ASSERT_TRUE(file_.write(std::move(both.file), std::move(both.memory)));
    }
  }
  Bytes content(uint64_t size) {
    Bytes bytes(size);
    EXPECT_EQ(*file_.read(Extents(ext(0, size)), at(bytes.data(), size)), size);
    return bytes;
  }

  SharedSpace space_{JointWrites::space(kRanks)};
  std::vector<std::unique_ptr<JointWrites>> joints_;
  TestFile file_;
  std::atomic<bool> fails_{false};
  std::atomic<uint64_t> joint_{0}, largest_{0};
};

// Of a call: what a rank writes in each tile, and the bytes.
struct Wanted {
  plan::ViewPart part;
  Bytes bytes;
};

std::vector<Wanted> random_call(std::mt19937& random, int ranks, Bytes& expected) {
  const auto any = [&](uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random);
  };
  const uint64_t extent = any(200, 20'000), displacement = any(0, 2'000'000);
  std::vector<std::vector<plan::TypeMap::Block>> blocks(static_cast<size_t>(ranks));
  for (uint64_t at = 0; at < extent;) {
    const uint64_t length = std::min(extent - at, any(1, extent / 4));
    const uint64_t rank = any(0, static_cast<uint64_t>(ranks));  // or nobody
    if (rank < blocks.size())
      blocks[rank].push_back({static_cast<int64_t>(at), static_cast<int64_t>(length)});
    at += length;
  }
  std::vector<Wanted> all;
  for (auto& list : blocks) {
    if (list.empty()) {  // it has nothing to write
      all.emplace_back();
      continue;
    }
    const auto view = view_of(displacement, list, static_cast<int64_t>(extent));
    Wanted wanted{{view, Length(any(0, 5000)), Length(any(1, 1'500'000))}, {}};
    wanted.bytes.resize(wanted.part.length.value);
    for (std::byte& byte : wanted.bytes) byte = static_cast<std::byte>(any(1, 255));
    uint64_t place = 0;
    for (auto cursor = wanted.part.cursor(); !cursor.done();) {
      const Extent piece = cursor.take(cursor.left());
      if (piece.end().value > expected.size()) {
        wanted.part.length = Length(place);
        wanted.bytes.resize(place);
        break;
      }
      std::memcpy(expected.data() + piece.offset.value, wanted.bytes.data() + place,
                  piece.length.value);
      place += piece.length.value;
    }
    all.push_back(std::move(wanted));
  }
  return all;
}

TEST_F(JointWritesTest, WritesWhatItsMembersNameAndNothingElse) {
  constexpr uint64_t kSize = 12'000'000;
  std::mt19937 random(7);
  Bytes expected(kSize, std::byte{0xee});
  ASSERT_TRUE(file_.write(Extents(ext(0, kSize)), at(expected.data(), kSize)));
  for (int call = 0; call < 40; ++call) {
    const std::vector<Wanted> wanted = random_call(random, kRanks, expected);
    on_ranks([&](int rank) {
      const Wanted& mine = wanted[static_cast<size_t>(rank)];
      if (!mine.part.empty()) write(rank, mine.part, mine.bytes);
    });
    const Bytes found = content(kSize);
    const auto wrong = std::ranges::mismatch(found, expected).in1 - found.begin();
    ASSERT_EQ(wrong, static_cast<ptrdiff_t>(kSize)) << "call " << call;
  }
}

// Blocks of the ranks in turn, which leave no hole.
class Interleaved : public JointWritesTest {
 protected:
  static constexpr uint64_t kBlock = 64, kBytes = 640'000;

  plan::ViewPart part(int rank) const {
    const auto at = static_cast<int64_t>(kBlock) * rank;
    return {view_of(0, {{at, kBlock}}, kBlock * kRanks), Length(), Length(kBytes)};
  }
  void write_all(int rank, int call) {
    write(rank, part(rank), Bytes(kBytes, static_cast<std::byte>(call * kRanks + rank)));
  }
  bool good(int call) {
    const Bytes all = content(kBytes * kRanks);
    for (uint64_t i = 0; i < all.size(); ++i)
      if (all[i] !=
          static_cast<std::byte>(static_cast<uint64_t>(call) * kRanks + i / kBlock % kRanks))
        return false;
    return true;
  }
};

// Whether ranks meet is a matter of time, so until they do; and they never wait for ever.
TEST_F(Interleaved, GoesOutInLargePieces) {
  for (int call = 0; call < 1000 && largest_ <= kBlock; ++call) {
    on_ranks([&](int rank) { write_all(rank, call % 40); });
    ASSERT_TRUE(good(call % 40));
  }
  EXPECT_GT(joint_, 1u);
  EXPECT_GT(largest_, kBlock);
}

TEST_F(Interleaved, WhatFailsIsDoneByEachAlone) {
  fails_ = true;
  for (int call = 0; call < 20; ++call) {
    on_ranks([&](int rank) { write_all(rank, call); });
    ASSERT_TRUE(good(call));
  }
  EXPECT_EQ(joint_, 0u);
}

TEST_F(Interleaved, RanksGoTheirOwnPace) {
  on_ranks([&](int rank) {
    for (int call = 0; call < 10 * (rank + 1); ++call) write_all(rank, 1);
  });
  EXPECT_TRUE(good(1));
}

// Who leaves a team early begins its next write while others are still in the last one.
TEST_F(Interleaved, TheFirstToLeaveComeBackEarly) {
  constexpr uint64_t kStep = 320'000, kTurns = 40;  // of ranks and of calls, in the file
  const auto part_of = [&](int rank, uint64_t turn) {
    const uint64_t first = (static_cast<uint64_t>(rank) + turn * kRanks) * kStep;
    return plan::ViewPart{
        view_of(first + kBlock * static_cast<uint64_t>(rank), {{0, kBlock}}, kBlock * kRanks),
        Length(), Length(kBytes)};
  };
  on_ranks([&](int rank) {
    for (uint64_t turn = 0; turn < kTurns; ++turn)
      write(rank, part_of(rank, turn), Bytes(kBytes, static_cast<std::byte>(rank + 1)));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    for (uint64_t turn = 0; turn < kTurns; ++turn) {
      const Extents where = part_of(rank, turn).cursor().next(Length(kBytes), 10);
      Bytes found(kBytes);
      ASSERT_EQ(*file_.read(where, at(found.data(), kBytes)), kBytes);
      ASSERT_TRUE(found == Bytes(kBytes, static_cast<std::byte>(rank + 1)));
    }
  }
  RecordProperty("joint", static_cast<int>(joint_));  // on a busy machine they may never meet
}

// With the next file everybody waits for all again, whoever was alone with the last one.
TEST_F(Interleaved, EveryFileIsBegunAsTheFirst) {
  const auto joined = [&] { return joints_[3]->joined(); };
  for (int file = 0; file < 200 && joined() == 0; ++file) {
    for (int call = 0; call < 70; ++call) write_all(3, 1);
    for (const auto& one : joints_) one->renew();
    on_ranks([&](int rank) { write_all(rank, file % 40); });
    ASSERT_TRUE(good(file % 40));
  }
  EXPECT_GT(joined(), 0u);
  for (const auto& one : joints_) one->renew();
  EXPECT_EQ(joined(), 0u);
}

// However much it has to write, and in however many files.
TEST_F(Interleaved, WhoIsAloneWaitsAMomentOnly) {
  const plan::TiledMap view = view_of(0, {{0, 1000}}, 4000);
  const plan::ViewPart much{view, Length(), Length(uint64_t{8} << 30)};
  const auto never = [](Extents, Extents) -> Result<uint64_t> { return Error(EIO); };
  const auto begin = std::chrono::steady_clock::now();
  for (int file = 0; file < 20; ++file) {
    EXPECT_FALSE(joints_[3]->write(much, view, never));
    EXPECT_FALSE(joints_[3]->write(much, view, never));
    joints_[3]->renew();
  }
  // Of 8 GiB, a fourth of a nanosecond each would be 2 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST_F(Interleaved, WhoIsAloneWritesAlone) {
  for (int call = 0; call < 100; ++call) write_all(3, call % 40);
  EXPECT_EQ(joint_, 0u);
}

}  // namespace
}  // namespace forebay::mpiio
