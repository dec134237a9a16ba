#include "plan/own_pieces.h"

#include <gtest/gtest.h>

#include "core/testing.h"
#include "plan/coverage.h"
#include "plan/realms.h"

namespace forebay::plan {
namespace {

std::vector<Extent> blocks_of(const OwnPieces& own, Extent buffer) {
  const Extents memory = own.memory(buffer);
  EXPECT_TRUE(memory.loops().empty());
  return {memory.blocks().begin(), memory.blocks().end()};
}

TEST(OwnPieces, TakeThePlaceOfTheBuffersBytes) {
  OwnPieces own(10);
  EXPECT_EQ(blocks_of(own, ext(1000, 100)), (std::vector<Extent>{ext(1000, 100)}));
  EXPECT_TRUE(own.empty());
  EXPECT_TRUE(own.take(0, ext(5000, 10)));
  EXPECT_FALSE(own.take(15, ext(6000, 9))) << "too short";
  EXPECT_TRUE(own.take(30, ext(7000, 20)));
  EXPECT_TRUE(own.take(50, ext(3000, 12)));
  EXPECT_EQ(blocks_of(own, ext(1000, 100)),
            (std::vector<Extent>{ext(5000, 10), ext(1010, 20), ext(7000, 20), ext(3000, 12),
                                 ext(1062, 38)}));
  for (const uint64_t place : {0, 30, 50}) EXPECT_TRUE(own.has(place));
  for (const uint64_t place : {1, 15, 40, 62}) EXPECT_FALSE(own.has(place));
}

TEST(OwnPieces, MayBeAllOfAWindow) {
  OwnPieces own(1);
  EXPECT_TRUE(own.take(0, ext(5000, 60)));
  EXPECT_TRUE(own.take(60, ext(5060, 40)));
  EXPECT_EQ(blocks_of(own, ext(1000, 100)), (std::vector<Extent>{ext(5000, 100)}));
}

// A rank's pieces of `length` bytes, one in each `stride`.
ViewPart pieces(uint64_t first, int64_t length, int64_t stride, uint64_t count) {
  const auto byte = TypeMap::bytes(1).value();
  const auto piece = TypeMap::vector(static_cast<int64_t>(count), length, stride, byte).value();
  const auto view = TiledMap::once(Offset(first), piece).value();
  return {view, Length(0), view.total()};
}

TEST(NobodyShares, WhereRanksNameBytesOnceOnly) {
  const std::vector<ViewPart> apart = {pieces(0, 10, 40, 20), {}, pieces(10, 30, 40, 20)};
  EXPECT_TRUE(nobody_shares(apart, {}));
  EXPECT_TRUE(nobody_shares(apart, std::vector{ext(0, 800)}));
  EXPECT_TRUE(nobody_shares(apart, std::vector{ext(35, 100)}));
  const std::vector<ViewPart> gaps = {pieces(0, 10, 40, 20), pieces(10, 10, 40, 20)};
  EXPECT_TRUE(nobody_shares(gaps, std::vector{ext(0, 20), ext(40, 20)}));
}

TEST(NobodyShares, NotWhereTwoNameTheSame) {
  const std::vector<ViewPart> meet = {pieces(0, 11, 40, 20), pieces(10, 30, 40, 20)};
  EXPECT_FALSE(nobody_shares(meet, std::vector{ext(0, 800)}));
  EXPECT_TRUE(nobody_shares(meet, std::vector{ext(11, 29)})) << "elsewhere";
}

TEST(NobodyShares, NotKnownWhereARealmLeavesSomeOut) {
  const std::vector<ViewPart> apart = {pieces(0, 10, 40, 20), pieces(10, 30, 40, 20)};
  EXPECT_FALSE(nobody_shares(apart, std::vector{ext(0, 40), ext(80, 40)}));
}

}  // namespace
}  // namespace forebay::plan
