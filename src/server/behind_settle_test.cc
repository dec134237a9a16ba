// What waits until everything is written, and what becomes of that which cannot be.
#include "server/behind_testing.h"

namespace forebay::server::behind_store_tests {
namespace {

// ---- Commit, close, drain, cancel ----

TEST_F(Behind, CommitAndCloseWait) {
  make();
  for (const Op op : {Op::commit, Op::close}) {
    write(0, "aaaa");
    write(0, "aaaa");
    faults_->clear();
    hold_writes();
    const CallPtr settling = submit(data(op, file_), {});
    EXPECT_FALSE(settling->done());
    faults_->clear();
    faults_->release();
    EXPECT_TRUE(settling->done());
    EXPECT_NE(settling->reply().verifier, 0u);
  }
}

TEST_F(Behind, ACommitDoesNotWaitForWhatComesLater) {
  make();
  write(0, "aaaa");
  hold_writes();
  const CallPtr commit = submit(data(Op::commit, file_), {});
  write(0, "bbbb");
  faults_->clear();
  hold_writes();
  faults_->release();
  EXPECT_TRUE(commit->done());
  faults_->clear();
  EXPECT_EQ(content(4), "bbbb");
}

TEST_F(Behind, ACommitThatWaitsCanBeCancelled) {
  make();
  write(0, "aaaa");
  hold_writes();
  std::stop_source stop;
  Request r = data(Op::commit, file_);
  r.stop = stop.get_token();
  const CallPtr commit = submit(std::move(r), {});
  EXPECT_FALSE(commit->done());
  stop.request_stop();
  EXPECT_FALSE(commit->done()) << "not inside the stop request";
  loop_.run_for(1ms);
  EXPECT_EQ(commit->error(), ECANCELED);
  faults_->clear();
  faults_->release();
}

TEST_F(Behind, DrainWaitsForEverything) {
  make();
  const File other = create("g");
  prove(other);
  write(0, "aaaa");
  write(other, 0, "bbbb");
  faults_->clear();
  hold_writes();
  bool drained = false;
  store_->drain([&] { drained = true; });
  EXPECT_FALSE(drained);
  faults_->clear();
  faults_->release();
  EXPECT_TRUE(drained);
  store_->drain([&] { drained = false; });
  EXPECT_FALSE(drained) << "at once, if there is nothing";
}

TEST_F(Behind, TheEndIsACrash) {
  make();
  write(0, "aaaa");
  const CallPtr dropped = write(100, "bbbb");
  hold_writes();
  const CallPtr commit = submit(data(Op::commit, file_), {});
  store_.reset();
  EXPECT_EQ(commit->error(), ESHUTDOWN);
}

TEST_F(Behind, EachLifeHasItsVerifier) {
  make();
  const uint64_t one = ok(write(0, "a")).verifier;
  EXPECT_EQ(ok(write(1, "a")).verifier, one);
  EXPECT_EQ(ok(data(Op::commit, file_)).verifier, one);
  EXPECT_EQ(ok(data(Op::close, file_)).verifier, one);
  make();
  EXPECT_NE(ok(write(0, "a")).verifier, one);
}

// ---- Losses ----

TEST_F(Behind, ABatchThatFailsIsWrittenPieceByPiece) {
  make();
  write(0, "aa");
  write(10, "bb");
  write(20, "cc");
  faults_->add({.op = Op::write, .nth = 0});
  faults_->add({.op = Op::write, .nth = 2, .error = ENOSPC});
  ok(data(Op::commit, file_));
  EXPECT_EQ(writes(), 4u);
  const BehindStatus s = store_->status();
  EXPECT_EQ(s.retried, 3u);
  EXPECT_EQ(s.lost_bytes, 2u);
  EXPECT_EQ(s.memory, 0u);
  const auto loss = store_->take_loss(1, file_.handle);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->code(), ENOSPC);
  EXPECT_EQ(content(100).substr(20), "cc");
  EXPECT_EQ(content(100).substr(10, 2), std::string(2, '\0'));
}

TEST_F(Behind, EveryClientWithUncommittedWritesIsToldOnce) {
  make();
  write(0, "aa", 1);
  write(10, "bb", 2);
  write(20, "cc", 3);
  ok(submit(data(Op::commit, file_), {}, 3));
  write(0, "aa", 1);
  fail_writes(ENOSPC);
  loop_.run_for(2s);
  EXPECT_EQ(store_->take_loss(1, file_.handle)->code(), ENOSPC);
  EXPECT_EQ(store_->take_loss(2, file_.handle)->code(), ENOSPC) << "written, but not committed";
  EXPECT_FALSE(store_->take_loss(3, file_.handle)) << "committed";
  EXPECT_FALSE(store_->take_loss(1, file_.handle)) << "once";
  EXPECT_FALSE(store_->take_loss(2, file_.handle));
  EXPECT_TRUE(store_->all_told());
}

TEST_F(Behind, TheLossOfAClientThatIsGoneChangesTheVerifierOfItsFile) {
  make();
  const File other = create("g");
  prove(other);
  const uint64_t before = ok(write(0, "aa", 5)).verifier;
  const uint64_t others = ok(write(other, 0, "aa", 6)).verifier;
  ok(submit(data(Op::commit, other), {}, 6));
  store_->forget(5);
  EXPECT_TRUE(store_->all_told());
  fail_writes(EIO);
  loop_.run_for(2s);
  EXPECT_FALSE(store_->all_told());
  EXPECT_NE(ok(submit(data(Op::commit, file_), {}, 7)).verifier, before);
  EXPECT_EQ(ok(submit(data(Op::commit, other), {}, 6)).verifier, others);
}

TEST_F(Behind, ALossThatAClientHasNotTakenWhenItGoesChangesTheVerifier) {
  make();
  const uint64_t before = ok(write(0, "aa", 5)).verifier;
  fail_writes(EIO);
  loop_.run_for(2s);
  EXPECT_TRUE(store_->all_told()) << "not yet";
  store_->forget(5);
  EXPECT_NE(ok(submit(data(Op::commit, file_), {}, 7)).verifier, before);
}

TEST_F(Behind, AClientThatIsGoneAndLostNothingChangesNothing) {
  make();
  const uint64_t before = ok(write(0, "aa", 5)).verifier;
  store_->forget(5);
  EXPECT_EQ(ok(submit(data(Op::commit, file_), {}, 7)).verifier, before);
  EXPECT_TRUE(store_->all_told());
}

}  // namespace
}  // namespace forebay::server::behind_store_tests
