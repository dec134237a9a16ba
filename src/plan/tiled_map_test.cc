#include "plan/tiled_map.h"

#include <gtest/gtest.h>

#include "core/testing.h"
#include "plan/typemap_oracle.h"

namespace forebay::plan {
namespace {

constexpr uint64_t kAddress = uint64_t{1} << 40;
const void* const kBuffer = reinterpret_cast<const void*>(kAddress);

// A map and all of its bytes, or the first of them.
struct Laid {
  TiledMap map;
  std::vector<uint64_t> bytes;
};

Laid lay_buffer(const OracleType& type, int64_t count) {
  Laid laid{TiledMap::buffer(kBuffer, static_cast<uint64_t>(count), type.map).value(), {}};
  for (int64_t i = 0; i < count; ++i) {
    for (const int64_t b : type.bytes) {
      laid.bytes.push_back(kAddress + static_cast<uint64_t>(b + i * type.extent()));
    }
  }
  return laid;
}

Laid lay_view(const OracleType& type, uint64_t displacement, int64_t tiles) {
  Laid laid{TiledMap::view(Offset(displacement), type.map).value(), {}};
  for (int64_t i = 0; i < tiles; ++i) {
    for (const int64_t b : type.bytes) {
      laid.bytes.push_back(displacement + static_cast<uint64_t>(b + i * type.extent()));
    }
  }
  return laid;
}

std::vector<uint64_t> bytes_of(const Extents& extents) {
  std::vector<uint64_t> bytes;
  for (ExtentCursor cursor(extents); !cursor.done();) {
    const Extent e = cursor.take(extents.total());
    for (uint64_t k = 0; k < e.length.value; ++k) bytes.push_back(e.offset.value + k);
  }
  return bytes;
}

std::vector<uint64_t> part_of(const Laid& laid, uint64_t from, uint64_t length) {
  const auto at = laid.bytes.begin() + static_cast<ptrdiff_t>(from);
  return {at, at + static_cast<ptrdiff_t>(length)};
}

Extent bounds_of(const std::vector<uint64_t>& bytes) {
  if (bytes.empty()) return {};
  const auto [low, high] = std::minmax_element(bytes.begin(), bytes.end());
  return ext(*low, *high + 1 - *low);
}

struct Part {
  uint64_t from, length;
};

Part random_part(TypeOracle& oracle, const Laid& laid) {
  const auto total = static_cast<int64_t>(laid.bytes.size());
  const int64_t from = oracle.pick(0, total);
  return {static_cast<uint64_t>(from), static_cast<uint64_t>(oracle.pick(0, total - from))};
}

void expect_part(TypeOracle& oracle, const Laid& laid) {
  const auto [from, length] = random_part(oracle, laid);
  const std::vector<uint64_t> expected = part_of(laid, from, length);
  EXPECT_EQ(laid.map.bounds(Length(from), Length(length)), bounds_of(expected));
  for (uint64_t i = 0; i < length; i += static_cast<uint64_t>(oracle.pick(1, 20))) {
    ASSERT_EQ(laid.map.offset_of(Length(from + i)), Offset(expected[i]));
  }

  const auto blocks = static_cast<size_t>(oracle.pick(1, 9));
  const auto most = static_cast<uint64_t>(oracle.pick(1, oracle.pick(0, 1) ? 50 : 5000));
  std::vector<uint64_t> walked;
  for (TiledCursor cursor(laid.map, Length(from), Length(length)); !cursor.done();) {
    ASSERT_EQ(cursor.position().value, from + walked.size());
    const Extents next = cursor.next(Length(most), blocks);
    ASSERT_FALSE(next.empty());
    ASSERT_LE(next.total().value, most);
    ASSERT_LE(next.blocks().size(), blocks);
    const auto bytes = bytes_of(next);
    walked.insert(walked.end(), bytes.begin(), bytes.end());
  }
  ASSERT_EQ(walked, expected);
  walked.clear();
  for (TiledCursor cursor(laid.map, Length(from), Length(length)); !cursor.done();) {
    ASSERT_EQ(cursor.position().value, from + walked.size());
    const Row row = cursor.take_row(Length(most));
    ASSERT_LE(row.first.length.value * row.count, most);
    for (uint64_t k = 0; k < row.count; ++k)
      for (uint64_t i = 0; i < row.first.length.value; ++i)
        walked.push_back(row.first.offset.value + k * static_cast<uint64_t>(row.stride) + i);
  }
  ASSERT_EQ(walked, expected);
  walked.clear();
  for (TiledCursor cursor(laid.map, Length(from), Length(length)); !cursor.done();) {
    ASSERT_EQ(cursor.position().value, from + walked.size());
    const auto nest = cursor.take_nest(Length(most));
    ASSERT_LE(nest.bytes, most);
    for (uint64_t c = 0; c < nest.loops[2].count; ++c)
      for (uint64_t b = 0; b < nest.loops[1].count; ++b)
        for (uint64_t a = 0; a < nest.loops[0].count; ++a)
          for (uint64_t i = 0; i < nest.first.length.value; ++i)
            walked.push_back(nest.first.offset.value +
                             a * static_cast<uint64_t>(nest.loops[0].stride) +
                             b * static_cast<uint64_t>(nest.loops[1].stride) +
                             c * static_cast<uint64_t>(nest.loops[2].stride) + i);
    ASSERT_EQ(walked.size(), cursor.position().value - from);
  }
  ASSERT_EQ(walked, expected);
  if (const auto slice = laid.map.slice(Length(from), Length(length), blocks)) {
    ASSERT_EQ(bytes_of(*slice), expected);
  }
  const auto whole = laid.map.slice(Length(from), Length(length), 1 << 20);
  ASSERT_TRUE(whole.has_value());
  ASSERT_EQ(bytes_of(*whole), expected);
}

TEST(TiledMap, PartsOfBuffersAreTheOracles) {
  TypeOracle oracle(test_seed());
  for (int i = 0; i < 4000; ++i) {
    const OracleType type = oracle.make(static_cast<int>(oracle.pick(0, 5)), false);
    const Laid laid = lay_buffer(type, oracle.pick(1, 4));
    ASSERT_EQ(laid.map.total().value, laid.bytes.size());
    ASSERT_NO_FATAL_FAILURE(expect_part(oracle, laid)) << "case " << i;
  }
}

TEST(TiledMap, PartsOfViewsAreTheOracles) {
  TypeOracle oracle(test_seed());
  for (int i = 0; i < 2000; ++i) {
    const OracleType type = oracle.make(static_cast<int>(oracle.pick(1, 5)), true);
    const auto displacement = static_cast<uint64_t>(oracle.pick(0, 1) ? 7 : int64_t{1} << 42);
    const Laid laid = lay_view(type, displacement, oracle.pick(1, 6));
    ASSERT_GE(laid.map.total().value, laid.bytes.size());
    ASSERT_NO_FATAL_FAILURE(expect_part(oracle, laid)) << "case " << i;
  }
}

TEST(TiledMap, PositionBeyondAnOffset) {
  TypeOracle oracle(test_seed());
  for (int i = 0; i < 3000; ++i) {
    const bool forward = oracle.pick(0, 1) == 0;
    const OracleType type = oracle.make(static_cast<int>(oracle.pick(1, 4)), forward);
    const Laid laid = forward ? lay_view(type, 7, 8) : lay_buffer(type, oracle.pick(0, 3));
    const Extent all = bounds_of(laid.bytes);
    // A view goes on after the tiles laid here: stay within all but the last of them.
    const auto high = static_cast<int64_t>(all.length.value) - (forward ? type.extent() : -9);
    const uint64_t offset =
        all.offset.value + static_cast<uint64_t>(oracle.pick(forward ? 0 : -9, high));
    const auto last = std::find_if(laid.bytes.rbegin(), laid.bytes.rend(),
                                   [&](uint64_t b) { return b < offset; });
    const auto expected = static_cast<uint64_t>(laid.bytes.rend() - last);
    ASSERT_EQ(laid.map.position_beyond(Offset(offset)), Length(expected)) << "case " << i;
  }
}

TEST(TiledMap, BothSidesOfATransferAreCutAtTheSamePlaces) {
  TypeOracle oracle(test_seed());
  for (int i = 0; i < 3000; ++i) {
    const Laid file = lay_view(oracle.make(static_cast<int>(oracle.pick(1, 4)), true), 3, 4);
    const Laid memory =
        lay_buffer(oracle.make(static_cast<int>(oracle.pick(0, 4)), false), oracle.pick(0, 9));
    const Part f = random_part(oracle, file), m = random_part(oracle, memory);
    const uint64_t length = std::min(f.length, m.length);
    const auto blocks = static_cast<size_t>(oracle.pick(1, 9));
    const auto most = static_cast<uint64_t>(oracle.pick(1, 3000));
    std::vector<uint64_t> file_walked, memory_walked;
    TransferCursor cursor(file.map, Length(f.from), memory.map, Length(m.from), Length(length));
    while (!cursor.done()) {
      const TransferCursor::Part part = cursor.next(Length(most), blocks);
      ASSERT_FALSE(part.file.empty());
      ASSERT_EQ(part.file.total(), part.memory.total());
      ASSERT_LE(part.file.total().value, most);
      ASSERT_LE(part.file.blocks().size(), blocks);
      ASSERT_LE(part.memory.blocks().size(), blocks);
      for (const uint64_t b : bytes_of(part.file)) file_walked.push_back(b);
      for (const uint64_t b : bytes_of(part.memory)) memory_walked.push_back(b);
    }
    ASSERT_EQ(file_walked, part_of(file, f.from, length)) << "case " << i;
    ASSERT_EQ(memory_walked, part_of(memory, m.from, length)) << "case " << i;
  }
}

// 10^9 elements of 8 bytes, every second one.
TypeMap billion() {
  return TypeMap::vector(1000000000, 1, 16, TypeMap::bytes(8).value()).value();
}

TEST(TiledMap, ABillionElementsAreAFewNumbers) {
  const uint64_t displacement = uint64_t{1} << 41;
  const TiledMap view = TiledMap::view(Offset(displacement), billion()).value();
  const auto all = view.slice(Length(0), Length(8000000000), 1);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(*all, Extents::make({ext(displacement, 8)}, {{1000000000, 16}}).value());
  // Not even when it begins and ends in the midst of an element.
  const auto shifted = view.slice(Length(4), Length(7999999992), 2);
  ASSERT_TRUE(shifted.has_value());
  EXPECT_EQ(shifted->pieces(), 2u * 999999999);
  EXPECT_EQ(shifted->bounds(), ext(displacement + 4, 15999999984));
  EXPECT_EQ(view.offset_of(Length(8 * 123456789 + 3)), Offset(displacement + 16 * 123456789 + 3));
  EXPECT_EQ(view.position_beyond(Offset(displacement + 16 * 5 + 3)), Length(8 * 5 + 3));
  EXPECT_EQ(view.position_beyond(Offset(displacement + 16 * 5 + 12)), Length(8 * 6));
}

TEST(TiledMap, ATransferOfABillionElementsIsAFewParts) {
  const TiledMap file = TiledMap::view(Offset(0), billion()).value();
  const TypeMap twelve = TypeMap::resized(TypeMap::bytes(12).value(), 0, 20).value();
  const TiledMap memory = TiledMap::buffer(kBuffer, 700000000, twelve).value();
  for (const uint64_t shift : {0, 4}) {
    uint64_t bytes = 0;
    int parts = 0;
    TransferCursor cursor(file, Length(shift), memory, Length(0), Length(7000000000));
    for (; !cursor.done(); ++parts) {
      const auto part = cursor.next(Length(UINT64_MAX), 64);
      ASSERT_EQ(part.file.total(), part.memory.total());
      bytes += part.file.total().value;
    }
    EXPECT_EQ(bytes, 7000000000);
    EXPECT_LE(parts, 3);
  }
}

// The rows of a block of a large array: regular, but begun in the midst of a row.
TEST(TiledMap, LargeRowsBegunInTheMidstComeInFewParts) {
  const TypeMap row = TypeMap::vector(100000, 1, 16, TypeMap::bytes(8).value()).value();
  const TypeMap rows = TypeMap::vector(100000, 1, 1 << 22, row).value();
  const TiledMap view = TiledMap::view(Offset(0), rows).value();
  const uint64_t total = 8ull * 100000 * 100000;
  int parts = 0;
  for (TiledCursor cursor(view, Length(804), Length(total - 1000)); !cursor.done(); ++parts) {
    cursor.next(Length(UINT64_MAX), 1024);
  }
  EXPECT_LE(parts, 6);
}

TEST(TiledMap, SizesBeyond32Bits) {
  const TypeMap five = TypeMap::bytes(int64_t{5} << 30).value();
  const TypeMap gapped = TypeMap::resized(five, 0, int64_t{8} << 30).value();
  const TiledMap view = TiledMap::view(Offset(uint64_t{1} << 45), gapped).value();
  const auto part = view.slice(Length(1), Length(10_GiB), 8);
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->bounds(), ext((uint64_t{1} << 45) + 1, 16_GiB));
  EXPECT_EQ(view.position_beyond(Offset((uint64_t{1} << 45) + 7_GiB)), Length(5_GiB));
}

TEST(TiledMap, AViewReachesTheLargestOffset) {
  const TiledMap plain = TiledMap::view(Offset(100), TypeMap::bytes(1).value()).value();
  EXPECT_TRUE(plain.contiguous());
  EXPECT_EQ(plain.total(), Length(kMaxOffset - 100));
  EXPECT_EQ(plain.offset_of(Length(kMaxOffset - 101)), Offset(kMaxOffset - 1));
  const TiledMap strided = TiledMap::view(Offset(0), billion()).value();
  EXPECT_GT(strided.total().value, kMaxOffset / 4);
}

TEST(TiledMap, TilesMayOverlapWhereTheTypeDoesNot) {
  const TypeMap four = TypeMap::bytes(4).value();
  EXPECT_TRUE(TiledMap::view(Offset(0), TypeMap::resized(four, 0, 4).value())->monotone());
  const TypeMap close = TypeMap::resized(four, 0, 3).value();
  EXPECT_TRUE(close.monotone());
  EXPECT_FALSE(TiledMap::view(Offset(0), close)->monotone());
}

TEST(TiledMap, WhatCannotBeLaidIsAnError) {
  const TypeMap four = TypeMap::bytes(4).value();
  const std::vector<int64_t> before{-8};
  const TypeMap back = TypeMap::indexed_block(1, before, four).value();
  EXPECT_EQ(TiledMap::view(Offset(4), back).error().code(), EINVAL);
  EXPECT_TRUE(TiledMap::view(Offset(8), back).has_value());
  EXPECT_EQ(TiledMap::view(Offset(0), TypeMap::resized(four, 0, 0).value()).error().code(), EINVAL);
  EXPECT_EQ(TiledMap::view(Offset(0), TypeMap::resized(four, 0, -4).value()).error().code(),
            EINVAL);
  EXPECT_EQ(TiledMap::view(Offset(kMaxOffset - 3), four).error().code(), EINVAL);
  EXPECT_EQ(TiledMap::buffer(nullptr, 1, back).error().code(), EINVAL);
  EXPECT_EQ(TiledMap::buffer(kBuffer, kMaxOffset, four).error().code(), EOVERFLOW);
}

}  // namespace
}  // namespace forebay::plan
