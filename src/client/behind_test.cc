// What a client makes of writes that are acknowledged before they are written.
#include "client/testing.h"

namespace forebay {
namespace {

class BehindTest : public ClientFixture {
 protected:
  static Request whole(Op op) { return data(op, Extents(), Memory()); }
  static Reply verified(uint64_t verifier, uint64_t count = 0) {
    Reply r;
    r.count = count;
    r.verifier = verifier;
    return r;
  }
  void write(uint64_t verifier) {
    const auto answer = submit(data(Op::write, 0, bytes_));
    server.reply(server.take_request().id, verified(verifier, bytes_.size()));
    ASSERT_TRUE(answer->ok());
  }
  void another_life() {
    next_life();
    server.cut();
  }
  void stop_orderly() {
    next_life();
    server.deliver(wire::encode_goodbye("stopping", true));
  }
  void next_life() {
    ++server.welcome.boot;
    ++server.welcome.session;
  }
  std::string bytes_ = pattern(100);
};

TEST_F(BehindTest, ACommitWithTheSameVerifierIsGood) {
  connect();
  write(7);
  const auto commit = submit(whole(Op::commit));
  server.reply(server.take_request().id, verified(7));
  EXPECT_TRUE(commit->ok());
  another_life();
  const auto again = submit(whole(Op::commit));
  server.reply(server.take_request().id, verified(8));
  EXPECT_TRUE(again->ok()) << "nothing was written since";
}

TEST_F(BehindTest, ACommitOrCloseWithAnotherVerifierReportsTheLoss) {
  connect();
  for (const Op op : {Op::commit, Op::close}) {
    write(7);
    const auto lost = submit(whole(op));
    server.reply(server.take_request().id, verified(8));
    EXPECT_EQ(lost->code(), EIO);
    EXPECT_NE(lost->result->error().what().find("may be lost"), std::string::npos);
    const auto again = submit(whole(op));
    server.reply(server.take_request().id, verified(8));
    EXPECT_TRUE(again->ok()) << "once";
  }
}

TEST_F(BehindTest, ARestartIsReportedByTheNextCallOnTheFile) {
  for (const Op op : {Op::read, Op::write, Op::resize, Op::commit}) {
    server.welcome.boot = 1;
    server.there = server.welcoming = true;
    connect();
    write(7);
    another_life();
    const auto other = submit(getattr());
    server.reply(server.take_request().id, Reply{});
    EXPECT_TRUE(other->ok());
    std::string bytes(10, '?');
    const bool moves = op == Op::read || op == Op::write;
    const auto lost = submit(moves ? data(op, 0, bytes) : whole(op));
    server.settle();
    EXPECT_EQ(lost->code(), EIO) << op_info(op).name;
    EXPECT_TRUE(server.frames.empty()) << "and it is not done";
    const auto commit = submit(whole(Op::commit));
    server.reply(server.take_request().id, verified(8));
    EXPECT_TRUE(commit->ok()) << "once";
    finish();
  }
}

TEST_F(BehindTest, ACommitThatWasUnderWayWhenTheServerDiedReportsTheLoss) {
  connect();
  write(7);
  const auto commit = submit(whole(Op::commit));
  server.take_request();
  another_life();
  server.settle();
  EXPECT_EQ(commit->code(), EIO);
  EXPECT_TRUE(server.frames.empty());
}

TEST_F(BehindTest, ACloseAfterARestartIsDoneAndReportsTheLoss) {
  connect();
  write(7);
  another_life();
  const auto close = submit(whole(Op::close));
  server.reply(server.take_request().id, Reply{});
  EXPECT_EQ(close->code(), EIO);
}

TEST_F(BehindTest, AResumedSessionHasLostNothing) {
  connect();
  write(7);
  server.welcome.resumed = true;
  server.cut();
  const auto commit = submit(whole(Op::commit));
  server.reply(server.take_request().id, verified(7));
  EXPECT_TRUE(commit->ok());
}

TEST_F(BehindTest, AForgottenSessionHasLostNothingIfTheVerifierSaysSo) {
  connect();
  write(7);
  server.welcome.session = 8;
  server.cut();
  const auto commit = submit(whole(Op::commit));
  server.reply(server.take_request().id, verified(7));
  EXPECT_TRUE(commit->ok());
}

TEST_F(BehindTest, AGoodbyeSaysWhetherAllIsWritten) {
  for (const bool written : {true, false}) {
    server.welcome.boot = 1;
    server.there = server.welcoming = true;
    connect();
    write(7);
    server.welcome.boot = 2;
    server.deliver(wire::encode_goodbye("stopping", written));
    const auto commit = submit(whole(Op::commit));
    server.settle();
    if (written) server.reply(server.take_request().id, verified(8));
    EXPECT_EQ(commit->code(), written ? 0 : EIO);
    finish();
  }
}

// The first life dies with what it acknowledged. The second, which acknowledged nothing, stops
// orderly: its goodbye is not about the first one's writes.
TEST_F(BehindTest, AGoodbyeIsNotAboutAnEarlierLife) {
  for (const Op op : {Op::commit, Op::close}) {
    server.there = server.welcoming = true;
    connect();
    write(7);
    another_life();
    const auto other = submit(getattr());
    server.reply(server.take_request().id, Reply{});
    EXPECT_TRUE(other->ok());
    stop_orderly();
    const auto lost = submit(whole(op));
    server.settle();
    if (op == Op::close) server.reply(server.take_request().id, Reply{});
    EXPECT_EQ(lost->code(), EIO) << op_info(op).name;
    const auto commit = submit(whole(Op::commit));
    server.reply(server.take_request().id, verified(9));
    EXPECT_TRUE(commit->ok()) << "once";
    finish();
  }
}

TEST_F(BehindTest, ACloseThatASecondLifeLeavesToAThirdReportsWhatTheFirstLost) {
  connect();
  write(7);
  another_life();
  const auto close = submit(whole(Op::close));
  EXPECT_EQ(server.take_request().request.op, Op::close);
  stop_orderly();
  server.reply(server.take_request().id, Reply{});
  EXPECT_EQ(close->code(), EIO);
}

}  // namespace
}  // namespace forebay
