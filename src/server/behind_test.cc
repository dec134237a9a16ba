// Write-behind as clients of a server see it: what they are told, when, and once.
#include <gtest/gtest.h>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

using Action = FaultRule::Action;

ExportOptions behind() {
  ExportOptions o = SimServer::unmerged();
  o.write_behind = {.when = When::always, .memory = 128_KiB, .age = 1s};
  return o;
}

class BehindServer : public ::testing::Test {
 protected:
  void make(ServerOptions options = {}) {
    a_.reset();
    b_.reset();
    sim_ = std::make_unique<SimServer>(test_seed(), options, behind());
    a_ = sim_->client("a");
    b_ = sim_->client("b");
    file_ = create(*a_, "f");
    // A right of b's own, and both of them proved by a first write.
    Request open = request(Op::open, file_.handle);
    open.access = Access::both;
    others_ = {file_.handle, b_->call(std::move(open))->reply().right};
    write(*a_, file_, 0, "aaaa");
    write(*b_, others_, 10, "bbbb");
    sim_->store->clear();
  }
  RawClient::CallRef write(RawClient& client, const OpenFile& file, uint64_t at,
                           const std::string& bytes) {
    return client.call(data_request(Op::write, file, range(at, bytes.size())), bytes);
  }
  RawClient::CallRef commit(RawClient& client, const OpenFile& file) {
    return client.call(data_request(Op::commit, file, {}));
  }
  void fail_writes(int error) { sim_->store->add({.op = Op::write, .error = error}); }

  std::unique_ptr<SimServer> sim_;
  std::unique_ptr<RawClient> a_, b_;
  OpenFile file_, others_;
};

TEST_F(BehindServer, AnErrorIsToldOnceToEachOfTwoClients) {
  for (const Op op : {Op::read, Op::write, Op::commit}) {
    make();
    EXPECT_NE(write(*a_, file_, 0, "AAAA")->reply().verifier, 0u);
    EXPECT_NE(write(*b_, others_, 10, "BBBB")->reply().verifier, 0u);
    fail_writes(ENOSPC);
    sim_->loop.run_for(2s);
    sim_->store->clear();
    const auto next = [&](RawClient& client, const OpenFile& file) {
      const Extents where = op == Op::commit ? Extents() : range(0, 4);
      return client.call(data_request(op, file, where), op == Op::write ? "AAAA" : "");
    };
    for (int i = 0; i < 2; ++i) {
      const int wanted = i == 0 ? ENOSPC : 0;
      EXPECT_EQ(next(*a_, file_)->error(), wanted) << op_info(op).name;
      EXPECT_EQ(next(*b_, others_)->error(), wanted) << op_info(op).name;
    }
  }
}

TEST_F(BehindServer, CommitReportsWhatItWaitedFor) {
  make();
  write(*a_, file_, 0, "AAAA");
  fail_writes(EDQUOT);
  EXPECT_EQ(commit(*a_, file_)->error(), EDQUOT);
  sim_->store->clear();
  write(*a_, file_, 0, "AAAA");
  EXPECT_EQ(commit(*a_, file_)->error(), 0);
  EXPECT_EQ(read_back(*b_, others_, 4), "AAAA");
}

TEST_F(BehindServer, CloseReportsWhatItWaitedFor) {
  make();
  write(*a_, file_, 0, "AAAA");
  fail_writes(ENOSPC);
  EXPECT_EQ(a_->call(data_request(Op::close, file_, {}))->error(), ENOSPC);
}

// Its right is held by another session as well, so that the Store does not close it.
TEST_F(BehindServer, CloseOfASharedRightWaitsAndReportsToo) {
  make();
  write(*b_, file_, 20, "bbbb");
  write(*a_, file_, 0, "AAAA");
  sim_->store->clear();
  fail_writes(ENOSPC);
  const auto closed = a_->call(data_request(Op::close, file_, {}));
  EXPECT_EQ(closed->error(), ENOSPC);
  EXPECT_EQ(sim_->store->calls(Op::close), 0u);
  EXPECT_EQ(sim_->store->calls(Op::write), 1u + 2u);
}

TEST_F(BehindServer, ALossThatIsToldOnALostConnectionIsToldAgainToTheSameRequest) {
  for (const Op op : {Op::read, Op::commit}) {
    make();
    write(*a_, file_, 0, "AAAA");
    fail_writes(EIO);
    sim_->loop.run_for(2s);
    sim_->store->clear();
    const Extents where = op == Op::commit ? Extents() : range(0, 4);
    const auto call = a_->send(data_request(op, file_, where));
    a_->hang_up();
    sim_->loop.run_for(1s);
    ASSERT_TRUE(a_->resume());
    EXPECT_EQ(a_->wait(call).error(), EIO) << op_info(op).name;
    EXPECT_EQ(commit(*a_, file_)->error(), 0);
  }
}

TEST_F(BehindServer, AClientThatWasForgottenLearnsOfItsLossByTheVerifier) {
  ServerOptions options;
  options.grace = 3s;
  make(options);
  const uint64_t acknowledged = write(*a_, file_, 0, "AAAA")->reply().verifier;
  a_->hang_up();
  fail_writes(EIO);
  sim_->loop.run_for(10s);
  sim_->store->clear();
  auto again = sim_->client("a");
  EXPECT_NE(commit(*again, file_)->reply().verifier, acknowledged);
}

TEST_F(BehindServer, AClientThatWasForgottenAndLostNothingIsNotAlarmed) {
  ServerOptions options;
  options.grace = 300ms;
  make(options);
  const uint64_t acknowledged = write(*a_, file_, 0, "AAAA")->reply().verifier;
  a_->hang_up();
  sim_->loop.run_for(10s);
  EXPECT_EQ(read_back(*b_, others_, 4), "AAAA");
  auto again = sim_->client("a");
  EXPECT_EQ(commit(*again, file_)->reply().verifier, acknowledged);
}

TEST_F(BehindServer, AReplyThatAForgottenClientNeverSawCountsAsNotTold) {
  ServerOptions options;
  options.grace = 3s;
  make(options);
  const uint64_t acknowledged = write(*a_, file_, 0, "AAAA")->reply().verifier;
  fail_writes(EIO);
  sim_->loop.run_for(2s);
  sim_->store->clear();
  a_->send(data_request(Op::commit, file_, {}));
  sim_->loop.run_for(5ms);
  a_->hang_up();
  sim_->loop.run_for(10s);
  auto again = sim_->client("a");
  EXPECT_NE(commit(*again, file_)->reply().verifier, acknowledged);
}

TEST_F(BehindServer, OthersGoOnWhileABackEndDoesNotAnswer) {
  ServerOptions options;
  options.deadline = 2s;
  make(options);
  write(*a_, file_, 0, "AAAA");
  sim_->store->add({.op = Op::write, .action = Action::hold});
  const auto waiting = a_->send(data_request(Op::commit, file_, {}));
  sim_->loop.run_for(100ms);
  EXPECT_FALSE(waiting->done());
  const OpenFile other = create(*b_, "g");
  EXPECT_EQ(b_->call(data_request(Op::read, other, range(0, 4)))->error(), 0);
  EXPECT_EQ(b_->call(data_request(Op::read, others_, range(10, 4)))->in, "bbbb")
      << "nor waits here";
  sim_->store->clear();
  sim_->store->release();
  EXPECT_EQ(a_->wait(waiting).error(), 0);
}

TEST_F(BehindServer, AnOrderlyStopWritesEverythingBeforeItSaysGoodbye) {
  make();
  write(*a_, file_, 0, "AAAA");
  MemoryStore* const memory = sim_->memory;
  bool stopped = false;
  std::string left(4, '?');
  sim_->server->stop(5s, [&] {
    Request r = data_request(Op::read, file_, range(0, 4));
    r.caller = this_process_caller();
    r.memory = Memory::of(std::as_writable_bytes(std::span(left)));
    EXPECT_TRUE(memory->call(std::move(r)));
    stopped = true;
  });
  EXPECT_TRUE(sim_->loop.run_until([&] { return stopped; }, 10s));
  EXPECT_TRUE(a_->goodbye && a_->written);
  EXPECT_EQ(left, "AAAA");
}

TEST_F(BehindServer, AGoodbyeAfterALossDoesNotPromiseThatAllIsWritten) {
  make();
  write(*a_, file_, 0, "AAAA");
  fail_writes(EIO);
  bool stopped = false;
  sim_->server->stop(5s, [&] { stopped = true; });
  EXPECT_TRUE(sim_->loop.run_until([&] { return stopped; }, 10s));
  EXPECT_TRUE(a_->goodbye && !a_->written);
}

TEST_F(BehindServer, AStopDoesNotWaitForEverForABackEnd) {
  make();
  write(*a_, file_, 0, "AAAA");
  sim_->store->add({.op = Op::write, .action = Action::hold});
  bool stopped = false;
  sim_->server->stop(5s, [&] { stopped = true; });
  sim_->loop.run_for(4s);
  EXPECT_FALSE(stopped);
  EXPECT_TRUE(sim_->loop.run_until([&] { return stopped; }, 10s));
  EXPECT_FALSE(a_->goodbye);
}

TEST_F(BehindServer, BulkDataIsAcknowledgedEarlyAsWell) {
  make();
  const std::string data = pattern(7, 100'000);
  EXPECT_NE(write(*a_, file_, 0, data)->reply().verifier, 0u);
  EXPECT_EQ(read_back(*b_, others_, data.size()), data);
}

// An error has no verifier: a client that is told of so many bytes would not learn of their loss.
TEST_F(BehindServer, AFailedWriteCountsOnlyWhatIsInTheStore) {
  make();
  sim_->store->add({.op = Op::write, .nth = 0, .action = Action::hold});  // the first round
  fail_writes(ENOSPC);
  const auto failed = write(*a_, file_, 0, pattern(7, 200'000));
  ASSERT_EQ(failed->error(), ENOSPC);
  EXPECT_EQ(sim_->store->held(), 1u) << "some of it is acknowledged only";
  EXPECT_EQ(failed->result->error().done(), 0u);
  sim_->store->clear();
  sim_->store->release();
}

TEST_F(BehindServer, ShowsInStatus) {
  make();
  write(*a_, file_, 0, "AAAA");
  const std::string status = sim_->server->status();
  EXPECT_NE(status.find(R"("write_behind": {"when": "on")"), std::string::npos) << status;
  EXPECT_NE(status.find(R"("dirty_files": 1, "writes": 1, "bytes": 4)"), std::string::npos)
      << status;
}

}  // namespace
}  // namespace forebay::server
