#include "plan/typemap.h"

#include <gtest/gtest.h>

#include "core/testing.h"
#include "plan/tiled_map.h"
#include "plan/typemap_oracle.h"

namespace forebay::plan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// Maximal ranges of neighbours, as pieces would be walked.
uint64_t runs_of(const std::vector<int64_t>& bytes) {
  uint64_t runs = 0;
  for (size_t i = 0; i < bytes.size(); ++i) runs += i == 0 || bytes[i] != bytes[i - 1] + 1;
  return runs;
}

void expect_equal(const OracleType& type) {
  const TypeMap& map = type.map;
  ASSERT_EQ(map.size(), static_cast<int64_t>(type.bytes.size()));
  EXPECT_EQ(map.lb(), type.lb);
  EXPECT_EQ(map.ub(), type.ub);
  EXPECT_GE(map.pieces(), runs_of(type.bytes));
  if (type.bytes.empty()) return;
  const auto [low, high] = std::minmax_element(type.bytes.begin(), type.bytes.end());
  EXPECT_EQ(map.true_lb(), *low);
  EXPECT_EQ(map.true_ub(), *high + 1);
  const bool rising = std::is_sorted(type.bytes.begin(), type.bytes.end(), std::less_equal<>());
  EXPECT_EQ(map.monotone(), rising);
  if (rising) {
    EXPECT_TRUE(map.ordered());
  }
  EXPECT_EQ(map.contiguous(),
            runs_of(type.bytes) == 1 && type.extent() == static_cast<int64_t>(type.bytes.size()));
}

TEST(TypeMap, RandomTypesNameTheOraclesBytes) {
  TypeOracle oracle(test_seed());
  for (int i = 0; i < 6000; ++i) {
    const OracleType type =
        oracle.make(static_cast<int>(oracle.pick(0, 5)), oracle.pick(0, 3) == 0);
    ASSERT_NO_FATAL_FAILURE(expect_equal(type)) << "case " << i;
    // Far from 0, so that what lies below stays an address.
    constexpr uint64_t kBase = uint64_t{1} << 40;
    const auto map = TiledMap::buffer(reinterpret_cast<const void*>(kBase), 1, type.map).value();
    std::vector<int64_t> walked;
    for (TiledCursor cursor(map, Length(0), map.total()); !cursor.done();) {
      const Extents next = cursor.next(Length(UINT64_MAX), 3);
      for (ExtentCursor pieces(next); !pieces.done();) {
        const Extent e = pieces.take(next.total());
        for (uint64_t k = 0; k < e.length.value; ++k) {
          walked.push_back(static_cast<int64_t>(e.offset.value + k - kBase));
        }
      }
    }
    ASSERT_EQ(walked, type.bytes) << "case " << i;
  }
}

TEST(TypeMap, OneFormForOneShape) {
  const TypeMap four = TypeMap::bytes(4).value();
  EXPECT_TRUE(TypeMap::contiguous(1000000000, four)->contiguous());
  EXPECT_TRUE(TypeMap::vector(10, 3, 12, four)->contiguous());
  const std::vector<TypeMap::Block> touching{{0, 2}, {8, 1}, {12, 5}};
  EXPECT_TRUE(TypeMap::indexed(touching, four)->contiguous());
  const std::vector<TypeMap::Member> members{{0, 1, four}, {4, 2, TypeMap::bytes(2).value()}};
  EXPECT_EQ(TypeMap::structure(members)->pieces(), 1u);
  // Repetitions of a loop that continue it.
  const TypeMap gapped = TypeMap::resized(four, 0, 8).value();
  const TypeMap rows = TypeMap::vector(5, 10, 80, gapped).value();
  EXPECT_EQ(rows.pieces(), 50u);
  const auto shape = TiledMap::buffer(nullptr, 1, rows)->slice(Length(0), Length(200), 4);
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(*shape, Extents::make({ext(0, 4)}, {{50, 8}}).value());
}

TEST(TypeMap, RegularListsAreLoops) {
  const TypeMap pair = TypeMap::vector(2, 1, 16, TypeMap::bytes(4).value()).value();
  std::vector<int64_t> at;
  for (int64_t i = 0; i < 100000; ++i) at.push_back(i * 64);
  const TypeMap map = TypeMap::indexed_block(1, at, pair).value();
  const auto shape = TiledMap::view(Offset(0), map)->slice(Length(0), Length(800000), 1);
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(shape->loops().size(), 2u);
  EXPECT_EQ(shape->blocks().size(), 1u);
}

TEST(TypeMap, NegativeCountsAndOverflowAreErrors) {
  const TypeMap eight = TypeMap::bytes(8).value();
  const TypeMap huge = TypeMap::bytes(INT64_MAX).value();
  EXPECT_EQ(TypeMap::bytes(-1).error().code(), EINVAL);
  EXPECT_EQ(TypeMap::contiguous(-1, eight).error().code(), EINVAL);
  EXPECT_EQ(TypeMap::vector(-1, 1, 8, eight).error().code(), EINVAL);
  EXPECT_EQ(TypeMap::vector(1, -1, 8, eight).error().code(), EINVAL);
  const std::vector<TypeMap::Block> negative{{0, -1}};
  EXPECT_EQ(TypeMap::indexed(negative, eight).error().code(), EINVAL);

  EXPECT_EQ(TypeMap::contiguous(2, huge).error().code(), EOVERFLOW);
  EXPECT_EQ(TypeMap::contiguous(INT64_MAX, eight).error().code(), EOVERFLOW);
  EXPECT_EQ(TypeMap::vector(3, 1, INT64_MAX, eight).error().code(), EOVERFLOW);
  EXPECT_EQ(TypeMap::vector(3, 1, INT64_MIN, eight).error().code(), EOVERFLOW);
  EXPECT_EQ(TypeMap::resized(eight, INT64_MAX, 1).error().code(), EOVERFLOW);
  const std::vector<TypeMap::Block> wide{{INT64_MIN + 1, 1}, {INT64_MAX - 16, 1}};
  EXPECT_EQ(TypeMap::indexed(wide, eight).error().code(), EOVERFLOW);
  const std::vector<TypeMap::Block> far{{INT64_MAX - 4, 1}};
  EXPECT_EQ(TypeMap::indexed(far, eight).error().code(), EOVERFLOW);
  const std::vector<TypeMap::Member> much{{0, 1, huge}, {0, 1, eight}};
  EXPECT_EQ(TypeMap::structure(much).error().code(), EOVERFLOW);
  // Repetition in place counts bytes without a bound of their own.
  EXPECT_EQ(TypeMap::vector(kGiB * 4, 1, 0, TypeMap::bytes(kGiB * 4).value()).error().code(),
            EOVERFLOW);
}

TEST(TypeMap, EmptyTypesKeepTheirBounds) {
  const TypeMap none = TypeMap::bytes(0).value();
  const TypeMap spaced = TypeMap::resized(none, -4, 12).value();
  const TypeMap three = TypeMap::contiguous(3, spaced).value();
  EXPECT_EQ(three.size(), 0);
  EXPECT_EQ(three.lb(), -4);
  EXPECT_EQ(three.extent(), 36);
  EXPECT_EQ(TypeMap::contiguous(0, spaced)->extent(), 0);
  EXPECT_EQ(TiledMap::buffer(nullptr, 7, three)->total(), Length(0));
  EXPECT_EQ(TiledMap::view(Offset(0), three)->total(), Length(0));
}

TEST(TypeMap, OutlinesTellTypesApart) {
  const TypeMap byte = *TypeMap::bytes(1), four = *TypeMap::bytes(4);
  const TypeMap vector = *TypeMap::vector(10, 1, 8, four);
  EXPECT_EQ(vector.outline(), TypeMap::vector(10, 4, 8, byte)->outline()) << "the same bytes";
  for (const TypeMap& other :
       {byte, four, *TypeMap::contiguous(10, four), *TypeMap::vector(10, 1, 12, four),
        *TypeMap::vector(5, 2, 8, four), *TypeMap::resized(vector, 0, 100),
        *TypeMap::resized(vector, -4, vector.extent())})
    EXPECT_NE(vector.outline(), other.outline());
  EXPECT_EQ(TypeMap().outline(), TypeMap::Outline());
}

}  // namespace
}  // namespace forebay::plan
