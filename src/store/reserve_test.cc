#include "store/reserve.h"

#include <gtest/gtest.h>

#include <vector>

#include "store/testing.h"

namespace forebay {
namespace {

class Reserve : public testing::Test {
 protected:
  // Of a file of `size_` bytes, where nothing is reserved, and `room_` blocks of 4 KiB are free.
  Result<Reply> answer(Request&& r) {
    Reply reply;
    if (r.op == Op::getattr) {
      reply.attr.size = size_;
    } else if (r.op == Op::statfs) {
      if (statfs_ != 0) return Error(statfs_);
      reply.statfs = {.block_size = 4096, .blocks = blocks_, .blocks_free = room_};
    } else {
      EXPECT_EQ(r.op, Op::fallocate);
      asked_.push_back({r.offset, r.length});
      flags_.push_back(r.flags);
      if (r.flags == 0 && plain_ != 0) return Error(plain_);
      if (asked_.size() == fails_) return Error(EDQUOT);
    }
    return reply;
  }

  int reserve(uint64_t offset, uint64_t length) {
    Request r = request(Op::fallocate, Handle{});
    r.offset = Offset(offset);
    r.length = Length(length);
    auto done = forebay::reserve([this](Request&& one) { return answer(std::move(one)); }, r);
    return done ? 0 : done.error().code();
  }

  uint64_t size_ = 0, blocks_ = 1 << 30, room_ = 1 << 20;
  int plain_ = EOPNOTSUPP, statfs_ = 0;
  size_t fails_ = 0;
  std::vector<Extent> asked_;
  std::vector<uint32_t> flags_;
};

TEST_F(Reserve, IsOneRequestWhereSpaceIsReserved) {
  plain_ = 0;
  EXPECT_EQ(reserve(5, uint64_t{1} << 50), 0);
  EXPECT_EQ(asked_, (std::vector<Extent>{{Offset(5), Length(uint64_t{1} << 50)}}));
}

TEST_F(Reserve, IsFilledAPieceAtATime) {
  for (const int code : {EOPNOTSUPP, ENOSYS}) {
    asked_.clear(), flags_.clear();
    plain_ = code;
    EXPECT_EQ(reserve(1000, 2 * kFillAtOnce + 1), 0);
    EXPECT_EQ(asked_, (std::vector<Extent>{{Offset(1000), Length(2 * kFillAtOnce + 1)},
                                           {Offset(1000), Length(kFillAtOnce)},
                                           {Offset(1000 + kFillAtOnce), Length(kFillAtOnce)},
                                           {Offset(1000 + 2 * kFillAtOnce), Length(1)}}));
    EXPECT_EQ(flags_, (std::vector<uint32_t>{0, kFlagFill, kFlagFill, kFlagFill}));
  }
}

TEST_F(Reserve, AnErrorEndsIt) {
  fails_ = 3;
  EXPECT_EQ(reserve(0, 10 * kFillAtOnce), EDQUOT);
  EXPECT_EQ(asked_.size(), 3u);
  asked_.clear();
  plain_ = EFBIG;
  EXPECT_EQ(reserve(0, 10), EFBIG);
  EXPECT_EQ(asked_.size(), 1u);
}

// Nothing is written then, not even the pieces that there is room for.
TEST_F(Reserve, MoreThanThereIsIsKnownBefore) {
  room_ = 2 * kFillAtOnce / 4096;
  EXPECT_EQ(reserve(0, 2 * kFillAtOnce + 4096), ENOSPC);
  EXPECT_EQ(asked_.size(), 1u);
  size_ = 4096;
  EXPECT_EQ(reserve(0, 2 * kFillAtOnce + 4096), 0);
  size_ = 10 * kFillAtOnce;
  EXPECT_EQ(reserve(0, size_), 0) << "holes are not counted";
  size_ = 0;
  EXPECT_EQ(reserve(20 * kFillAtOnce, 1), 0) << "nor what lies before";
}

TEST_F(Reserve, AStoreThatCannotTellHasRoom) {
  room_ = 0;
  blocks_ = 0;
  EXPECT_EQ(reserve(0, 1_MiB), 0);
  blocks_ = 100;
  statfs_ = EOPNOTSUPP;
  EXPECT_EQ(reserve(0, 1_MiB), 0);
}

}  // namespace
}  // namespace forebay
