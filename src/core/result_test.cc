#include "core/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace forebay {
namespace {

TEST(Error, SaysWhatWhereAndWhy) {
  EXPECT_EQ(Error(ENOSPC).message(), "No space left on device");
  EXPECT_EQ(Error(ENOSPC, "/a/b").at("put").message(), "put: /a/b: No space left on device");
  EXPECT_EQ(Error(ENOSPC).at("put").what(), "put");
  EXPECT_EQ(Error(ENOSPC, "write").with_done(10).message(),
            "write: No space left on device (10 bytes were done)");
  EXPECT_EQ(Error(4711).message(), "errno 4711");
}

TEST(Error, KeepsWhatItCarries) {
  const Error e = Error(EDQUOT, "x").with_done(7).at("y");
  EXPECT_EQ(e.code(), EDQUOT);
  EXPECT_EQ(e.done(), 7u);
  EXPECT_FALSE(e.is_outcome_unknown());
  const Error lost = Error::outcome_unknown("rename");
  EXPECT_EQ(lost.code(), ECONNABORTED);
  EXPECT_TRUE(lost.is_outcome_unknown());
  EXPECT_NE(lost.message().find("may or may not"), std::string::npos);
}

TEST(Error, NamesErrnos) {
  EXPECT_EQ(errno_name(ENOSPC), "ENOSPC");
  EXPECT_EQ(errno_name(4711), "errno 4711");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::unique_ptr<int>> good = std::make_unique<int>(3);
  ASSERT_TRUE(good);
  EXPECT_EQ(**good, 3);
  std::unique_ptr<int> out = std::move(*good);
  EXPECT_EQ(*out, 3);
  Result<int> bad = Error(EIO, "disk");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), EIO);
  EXPECT_EQ(std::move(bad).value_or(9), 9);
  EXPECT_TRUE(Result<void>());
  EXPECT_EQ(Result<void>(Error(EIO)).error().code(), EIO);
}

TEST(ResultDeath, StopsWithTheValues) {
  const Result<int> bad = Error(EIO, "the disk of node 7");
  EXPECT_DEATH(bad.value(), "the disk of node 7: Input/output error");
  EXPECT_DEATH(Result<int>(1).error(), "assertion failed");
  EXPECT_DEATH(Error(0), "code != 0");
  EXPECT_DEATH(FOREBAY_ASSERT(1 + 1 == 3, std::string("sums")), "1 \\+ 1 == 3: sums");
}

}  // namespace
}  // namespace forebay
