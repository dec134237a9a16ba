#include "server/dirty_pieces.h"

#include <gtest/gtest.h>

#include <cstring>

#include <random>

#include "core/testing.h"

namespace forebay::server {
namespace {

TEST(Budget, IsNeverExceeded) {
  Budget budget(100);
  EXPECT_TRUE(budget.take(60));
  EXPECT_FALSE(budget.take(41));
  EXPECT_FALSE(budget.take(UINT64_MAX)) << "without overflowing";
  EXPECT_TRUE(budget.take(40));
  budget.give_back(100);
  EXPECT_EQ(budget.used(), 0u);
}

TEST(Block, CountsAgainstItsBudgetWhileSomebodyRefersToIt) {
  Budget budget(10'000);
  std::string bytes(5000, 'x');
  const Memory memory = Memory::of(std::as_bytes(std::span(bytes)));
  auto block = Block::copy_of(memory, 1, budget);
  ASSERT_TRUE(block);
  EXPECT_GE(budget.used(), 5000u);
  EXPECT_FALSE(Block::copy_of(memory, 1, budget));
  {
    DirtyPieces pieces;
    pieces.put({{Offset(0), Length(5000)}, block->data(), block, {}});
    pieces.put({{Offset(10), Length(4980)}, block->data(), block, {}});
    block.reset();
    EXPECT_GE(budget.used(), 5000u);
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(Block, ManyPiecesAreChargedForAsWell) {
  Budget budget(1_MiB);
  std::string bytes(4096, 'x');
  EXPECT_FALSE(Block::copy_of(Memory::of(std::as_bytes(std::span(bytes))), 1 << 16, budget));
  EXPECT_FALSE(Block::copy_of(Memory::of(std::as_bytes(std::span(bytes))), UINT64_MAX, budget));
}

// The same in the plainest way: byte by byte.
struct Oracle {
  std::vector<int> bytes = std::vector<int>(512, -1);  // -1: not dirty
  void put(uint64_t at, std::string_view data) {
    for (size_t i = 0; i < data.size(); ++i) bytes[at + i] = static_cast<unsigned char>(data[i]);
  }
};

class Random : public ::testing::Test {
 protected:
  uint64_t below(uint64_t n) { return random_() % n; }
  Extent extent() {
    const uint64_t at = below(500);
    return {Offset(at), Length(1 + below(std::min<uint64_t>(40, 512 - at)))};
  }
  void put(DirtyPieces& pieces, Oracle& oracle) {
    const Extent where = extent();
    std::string data(where.length.value, '\0');
    for (char& c : data) c = static_cast<char>(below(256));
    const auto block = Block::copy_of(Memory::of(std::as_bytes(std::span(data))), 1, budget_);
    pieces.put({where, block->data(), block, {}});
    oracle.put(where.offset.value, data);
  }
  Extents extents() {
    std::vector<Extent> list;
    for (uint64_t n = 1 + below(3); n > 0; --n) list.push_back(extent());
    return Extents::make(std::move(list)).value();
  }
  // What a read should find, -1 for what is in neither.
  static std::vector<int> expected(const Oracle& newer, const Oracle& older, const Extents& where) {
    std::vector<int> out;
    for (ExtentCursor c(where); !c.done();) {
      const Extent e = c.take(where.total());
      for (uint64_t i = e.offset.value; i < e.end().value; ++i) {
        out.push_back(newer.bytes[i] >= 0 ? newer.bytes[i] : older.bytes[i]);
      }
    }
    return out;
  }

  std::mt19937_64 random_{test_seed()};
  Budget budget_{1_GiB};
};

TEST_F(Random, AgreesWithBytes) {
  for (int round = 0; round < 200; ++round) {
    DirtyPieces newer, older;
    Oracle new_bytes, old_bytes;
    for (uint64_t n = below(20); n > 0; --n) put(older, old_bytes);
    for (uint64_t n = below(20); n > 0; --n) put(newer, new_bytes);
    uint64_t end = 0;
    newer.each([&](const Piece& piece) {
      ASSERT_GE(piece.file.offset.value, end) << "in order, without overlap";
      end = piece.file.end().value;
      for (uint64_t i = 0; i < piece.file.length.value; ++i) {
        ASSERT_EQ(static_cast<int>(piece.data[i]), new_bytes.bytes[piece.file.offset.value + i]);
      }
    });
    const auto dirty = std::ranges::count_if(new_bytes.bytes, [](int b) { return b >= 0; });
    uint64_t total = 0;
    newer.each([&](const Piece& piece) { total += piece.file.length.value; });
    ASSERT_EQ(total, static_cast<uint64_t>(dirty));
    for (int i = 0; i < 20; ++i) {
      const Extents where = extents();
      const Oracle none;
      const auto alone = expected(new_bytes, none, where);
      ASSERT_EQ(newer.touch(where), std::ranges::any_of(alone, [](int b) { return b >= 0; }));
      const auto wanted = expected(new_bytes, old_bytes, where);
      const auto copies = gather(newer, older, where);
      ASSERT_EQ(copies.has_value(), std::ranges::none_of(wanted, [](int b) { return b < 0; }));
      if (!copies) continue;
      std::vector<int> got(wanted.size(), -2);
      for (const PieceCopy& copy : *copies) {
        for (uint64_t k = 0; k < copy.length; ++k) {
          got[copy.place + k] = static_cast<int>(copy.from[k]);
        }
      }
      ASSERT_EQ(got, wanted);
    }
  }
  EXPECT_EQ(budget_.used(), 0u);
}

TEST_F(Random, TakesOutLongRunsAndLeavesTheRest) {
  for (int round = 0; round < 300; ++round) {
    DirtyPieces rest;
    Oracle all;
    for (uint64_t n = 1 + below(20); n > 0; --n) put(rest, all);
    const uint64_t least = 1 + below(100);
    const DirtyPieces taken = rest.take_runs(least);
    std::vector<int> where(513, 0);  // 1: left, 2: taken
    const auto mark = [&](const DirtyPieces& pieces, int as) {
      pieces.each([&](const Piece& piece) {
        for (uint64_t i = 0; i < piece.file.length.value; ++i) {
          const uint64_t at = piece.file.offset.value + i;
          ASSERT_EQ(std::exchange(where[at], as), 0);
          ASSERT_EQ(static_cast<int>(piece.data[i]), all.bytes[at]);
        }
      });
    };
    mark(rest, 1);
    mark(taken, 2);
    for (size_t first = 0; first < 512; ++first) {
      ASSERT_EQ(where[first] != 0, all.bytes[first] >= 0);
      if (where[first] == 0) continue;
      size_t end = first;
      while (where[end] != 0) ASSERT_EQ(where[end++], where[first]) << "a run is not cut";
      ASSERT_EQ(where[first] == 2, end - first >= least);
      first = end;
    }
  }
}

TEST(CopyPieces, LargeOnesGiveTheirMemoryBackOneByOne) {
  Budget budget(1_MiB);
  std::string bytes(3 * 8192, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>('a' + i / 4096);
  Request write;
  write.op = Op::write;
  write.file = Extents::make({{Offset(0), Length(8192)}, {Offset(1_MiB), Length(16384)}}).value();
  write.memory = Memory::of(std::as_bytes(std::span(bytes)));
  auto pieces = copy_pieces(write, {}, budget);
  ASSERT_TRUE(pieces && pieces->size() == 2);
  EXPECT_EQ(std::memcmp((*pieces)[0].data, "aaaa", 4), 0);
  EXPECT_EQ(std::memcmp((*pieces)[1].data, "cccc", 4), 0);
  const uint64_t both = budget.used();
  pieces->pop_back();
  EXPECT_LT(budget.used() + 16000, both);
  pieces->clear();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(CopyPieces, TakesNothingIfNotAllFits) {
  Budget budget(20'000);
  std::string bytes(3 * 8192, 'x');
  Request write;
  write.op = Op::write;
  write.file = Extents::make({{Offset(0), Length(8192)}}, {{3, 16384}}).value();
  write.memory = Memory::of(std::as_bytes(std::span(bytes)));
  EXPECT_FALSE(copy_pieces(write, {}, budget));
  EXPECT_EQ(budget.used(), 0u);
}

TEST(DirtyPieces, ViewsOfVeryManyPiecesAreLookedAtByTheirBounds) {
  Budget budget(1_MiB);
  std::string byte = "x";
  const auto block = Block::copy_of(Memory::of(std::as_bytes(std::span(byte))), 1, budget);
  DirtyPieces pieces;
  pieces.put({{Offset(1'000'001), Length(1)}, block->data(), block, {}});
  const auto view = [](uint64_t at, uint64_t count) {
    return Extents::make({{Offset(at), Length(1)}}, {{count, 2}}).value();
  };
  EXPECT_TRUE(pieces.touch(view(0, 1'000'000'000)))
      << "it does not, but that takes too long to see";
  EXPECT_FALSE(pieces.touch(view(1'000'002, 1'000'000'000)));
  EXPECT_FALSE(pieces.touch(view(1'000'000, 2)));
  EXPECT_TRUE(pieces.touch(view(1'000'001, 2)));
}

}  // namespace
}  // namespace forebay::server
