// The locks that a client has at other servers.
#include "server/relayed_locks.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

class RelayedLocksTest : public ::testing::Test {
 protected:
  static Request about(Op op, const std::string& file, uint64_t owner, uint64_t offset,
                       uint64_t length) {
    Request r;
    r.op = op;
    r.handle.bytes = file;
    r.cookie = owner;
    r.offset = Offset(offset);
    r.length = Length(length);
    return r;
  }
  // Returns its number there.
  uint64_t ask(Op op, const std::string& file, uint64_t owner, uint64_t offset, uint64_t length,
               bool done = true) {
    Request r = about(op, file, owner, offset, length);
    r.cookie = locks.owner_of(r).value();
    locks.ended(r, done);
    return r.cookie;
  }

  RelayedLocks locks;
};

TEST_F(RelayedLocksTest, AnOwnerHasOneNumberWhileItHoldsAnything) {
  const uint64_t one = ask(Op::lock, "f", 1, 0, 10);
  EXPECT_EQ(ask(Op::lock, "g", 1, 0, 10), one);
  EXPECT_NE(ask(Op::lock, "f", 2, 20, 10), one);
  EXPECT_EQ(ask(Op::unlock, "f", 1, 0, 0), one);
  EXPECT_EQ(locks.owner_of(about(Op::lock_test, "g", 1, 0, 0)).value(), one);
}

TEST_F(RelayedLocksTest, WhatIsUnlockedDoesNotAddUp) {
  for (uint64_t i = 0; i < 3 * RelayedLocks::kMostFiles; ++i) {
    const std::string file = std::to_string(i);
    ask(Op::lock, file, i, 0, 100);
    ask(Op::unlock, file, i, 0, 50);
    EXPECT_EQ(locks.files(), 1u);
    ask(Op::unlock, file, i, 50, 0);
    EXPECT_EQ(locks.files() + locks.owners(), 0u);
    ask(Op::lock, file, i, 0, 100, false);  // refused
  }
  EXPECT_EQ(locks.files() + locks.owners(), 0u);
}

TEST_F(RelayedLocksTest, WhatIsLeftIsFreedAndTooManyAreRefused) {
  for (size_t i = 0; i < RelayedLocks::kMostFiles; ++i) ask(Op::lock, std::to_string(i), 1, 0, 0);
  EXPECT_EQ(locks.owner_of(about(Op::lock, "one more", 1, 0, 0)).error().code(), ENOLCK);
  EXPECT_EQ(locks.take_unlocks().size(), 2 * RelayedLocks::kMostFiles);  // of both kinds
  EXPECT_EQ(locks.files() + locks.owners(), 0u);
}

TEST_F(RelayedLocksTest, AnOwnerHoldsWhatItWasGivenAndHasNotGivenBack) {
  Request f = about(Op::lock, "f", 1, 0, 10);
  f.cookie = locks.owner_of(f).value();
  EXPECT_FALSE(locks.holds(1)) << "it asks";
  EXPECT_EQ(locks.ended(f, true), std::nullopt);
  EXPECT_TRUE(locks.holds(1));
  ask(Op::lock, "g", 1, 0, 10);
  ask(Op::lock, "g", 1, 5, 10);
  f.op = Op::unlock;
  EXPECT_EQ(locks.ended(f, true), std::nullopt);
  EXPECT_TRUE(locks.holds(1));
  f.handle.bytes = "g";
  f.length = Length(0);
  EXPECT_EQ(locks.ended(f, true), 1u) << "that was all of it";
  EXPECT_FALSE(locks.holds(1));
}

TEST_F(RelayedLocksTest, WhoReclaimsKeepsItsNumber) {
  Request r = about(Op::lock, "f", 1, 0, 10);
  r.flags = kFlagReclaim;
  r.expected = 4711;
  EXPECT_EQ(locks.owner_of(r).value(), 4711u);
  EXPECT_EQ(ask(Op::lock, "g", 1, 0, 10), 4711u);
}

}  // namespace
}  // namespace forebay::server
