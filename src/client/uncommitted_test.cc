#include "client/uncommitted.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

const Handle kFile{"file"}, kOther{"other"};

TEST(Uncommitted, ACommitSettlesWhatWasAcknowledgedBeforeIt) {
  Uncommitted u;
  u.acknowledged(kFile, 7);
  const uint64_t sent = u.now();
  EXPECT_FALSE(u.settled(kFile, sent, 7));
  EXPECT_TRUE(u.empty());
}

TEST(Uncommitted, AWriteThatWasAcknowledgedAfterTheCommitWasSentStays) {
  Uncommitted u;
  u.acknowledged(kFile, 7);
  const uint64_t sent = u.now();
  u.acknowledged(kFile, 7);
  EXPECT_FALSE(u.settled(kFile, sent, 7));
  u.server_restarted();
  EXPECT_TRUE(u.take_loss(kFile)) << "its second write may be lost";
}

TEST(Uncommitted, ACommitSaysNothingAboutWhatIsAcknowledgedAfterItWasSent) {
  Uncommitted u;
  const uint64_t sent = u.now();
  u.acknowledged(kFile, 7);
  EXPECT_FALSE(u.settled(kFile, sent, 0)) << "the server had no write-behind when it was there";
  EXPECT_FALSE(u.empty());
  EXPECT_TRUE(u.settled(kFile, u.now(), 0));
}

TEST(Uncommitted, AnotherVerifierIsALossAndReportedOnce) {
  Uncommitted u;
  u.acknowledged(kFile, 7);
  u.acknowledged(kOther, 7);
  const auto loss = u.settled(kFile, u.now(), 8);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->code(), EIO);
  EXPECT_FALSE(u.settled(kFile, u.now(), 8));
  EXPECT_FALSE(u.settled(kOther, u.now(), 7));
}

TEST(Uncommitted, ARestartIsReportedAtTheNextCallOfEachFile) {
  Uncommitted u;
  u.acknowledged(kFile, 7);
  EXPECT_FALSE(u.take_loss(kFile)) << "nothing has happened";
  u.server_restarted();
  EXPECT_FALSE(u.take_loss(kOther)) << "it has written nothing";
  EXPECT_TRUE(u.take_loss(kFile));
  EXPECT_FALSE(u.take_loss(kFile)) << "once";
}

TEST(Uncommitted, WritesToTwoLivesOfAServerAreALoss) {
  Uncommitted u;
  u.acknowledged(kFile, 7);
  u.acknowledged(kFile, 8);
  EXPECT_TRUE(u.take_loss(kFile));
}

TEST(Uncommitted, AnOrderlyStopHasWrittenEverything) {
  Uncommitted u;
  u.acknowledged(kFile, 7);
  u.all_written();
  u.server_restarted();
  EXPECT_FALSE(u.take_loss(kFile));
  EXPECT_FALSE(u.settled(kFile, u.now(), 8));
}

TEST(Uncommitted, AnOrderlyStopSaysNothingAboutWhatAnEarlierLifeLost) {
  Uncommitted u;
  u.acknowledged(kFile, 7);
  u.server_restarted();
  u.acknowledged(kOther, 8);
  u.all_written();
  u.server_restarted();
  EXPECT_TRUE(u.take_loss(kFile));
  EXPECT_FALSE(u.take_loss(kOther)) << "its server has written it";
}

}  // namespace
}  // namespace forebay
