// A client whose connection or server is lost: "Once" and "Order", seen from the client.
#include "client/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;
using RecoveryTest = ClientFixture;

TEST_F(RecoveryTest, ResumesAndSendsAgainInOrder) {
  connect();
  std::string bytes = pattern(100);
  submit(getattr("one"));
  submit(remove("two"));
  submit(data(Op::write, 0, bytes));
  std::vector<wire::RequestId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(server.take_request().id);
  server.reply(ids[0], Reply{});
  server.welcome.resumed = true;
  server.cut();
  ASSERT_EQ(server.hellos.size(), 2u);
  EXPECT_EQ(server.hellos[1].session, 7u);
  EXPECT_EQ(server.hellos[1].session_key, server.welcome.session_key);
  submit(getattr("new"));
  std::string payload;
  EXPECT_EQ(server.take_request().id, ids[1]);
  EXPECT_EQ(server.take_request(&payload).id, ids[2]);
  EXPECT_EQ(payload, bytes);
  const auto last = server.take_request();
  EXPECT_EQ(last.request.handle.bytes, "new");
  server.reply(ids[1], Reply{});
  server.reply(ids[2], counted(100));
  server.reply(last.id, Reply{});
  for (const auto& a : order) EXPECT_TRUE(a->ok());
  EXPECT_EQ(store->stats().resent, 2u);
  EXPECT_EQ(store->stats().reconnects, 1u);
}

TEST_F(RecoveryTest, ARestartedServerGetsAgainWhatMayBeDoneTwice) {
  connect();
  std::string bytes = pattern(100);
  const auto a = submit(data(Op::write, 0, bytes));
  const auto b = submit(remove("precious"));
  const auto c = submit(getattr("last"));
  for (int i = 0; i < 3; ++i) server.take_request();
  server.welcome.boot = 2;
  server.welcome.session = 8;
  server.cut();
  EXPECT_TRUE(b->unknown());
  EXPECT_NE(b->result->error().what().find("remove precious"), std::string::npos);
  const auto ra = server.take_request(), rc = server.take_request();
  EXPECT_EQ(ra.request.op, Op::write);
  EXPECT_EQ(ra.id.sequence, 1u) << "a new session counts anew";
  EXPECT_EQ(rc.request.handle.bytes, "last");
  server.reply(ra.id, counted(100));
  server.reply(rc.id, Reply{});
  EXPECT_TRUE(a->ok() && c->ok());
}

TEST_F(RecoveryTest, AfterGoodbyeEverythingMayGoToTheSuccessor) {
  connect();
  const auto a = submit(remove("precious"));
  server.take_request();
  server.welcome.boot = 2;
  server.there = false;
  server.deliver(wire::encode_goodbye("stopping"));
  EXPECT_FALSE(server.connected());
  EXPECT_FALSE(a->result);
  server.there = true;
  loop.run_for(2s);
  EXPECT_EQ(server.hellos.back().session, 0u);
  server.reply(server.take_request().id, Reply{});
  EXPECT_TRUE(a->ok());
}

TEST_F(RecoveryTest, AGoodbyeAfterAResumeProvesNothingAboutWhatWasSentBefore) {
  connect();
  Request twice = remove("precious");
  twice.op = Op::xattr_remove;
  const auto a = submit(std::move(twice));
  server.take_request();
  server.welcome.resumed = true;
  server.cut();  // its answer may have been lost here
  const auto b = submit(remove("other"));
  server.settle();
  server.deliver(wire::encode_goodbye("stopping"));
  EXPECT_TRUE(a->unknown());
  EXPECT_FALSE(b->result);
}

TEST_F(RecoveryTest, WhatWasNeverSentIsSent) {
  connect();
  ASSERT_TRUE(store->root());
  server.there = false;
  server.cut();
  const auto a = submit(remove("precious"));
  loop.run_for(5s);
  EXPECT_FALSE(a->result);
  server.welcome.boot = 2;
  server.there = true;
  loop.run_for(2s);
  server.reply(server.take_request().id, Reply{});
  EXPECT_TRUE(a->ok());
}

TEST_F(RecoveryTest, TriesForAWhileAndThenSaysWhy) {
  connect(10s);
  std::string bytes = pattern(10);
  const auto a = submit(data(Op::write, 0, bytes));
  server.take_request();
  const auto b = submit(getattr());
  server.take_request();
  server.there = false;
  server.cut();
  loop.run_for(9s);
  EXPECT_FALSE(a->result);
  EXPECT_LT(server.connects, 30u) << "it must not hammer";
  loop.run_for(2s);
  EXPECT_EQ(a->code(), ENOTCONN);
  EXPECT_TRUE(a->unknown()) << "the write may have happened";
  EXPECT_EQ(b->code(), ENOTCONN);
  EXPECT_FALSE(b->unknown()) << "reading leaves no doubt";
  EXPECT_NE(b->result->error().what().find("sim:server"), std::string::npos);

  // From now on one attempt each, until one succeeds.
  const unsigned before = server.connects;
  const auto c = submit(getattr());
  server.settle();
  EXPECT_EQ(c->code(), ENOTCONN);
  EXPECT_EQ(server.connects, before + 1);
  server.there = true;
  const auto d = submit(getattr());
  server.reply(server.take_request().id, Reply{});
  EXPECT_TRUE(d->ok());
  EXPECT_EQ(server.hellos.back().session, 0u) << "the old session was given up";
}

TEST_F(RecoveryTest, AServerThatNeverAnswersHelloIsAsNone) {
  server.welcoming = false;
  connect(20s);
  const auto a = submit(getattr());
  loop.run_for(60s);
  EXPECT_EQ(a->code(), ETIMEDOUT);
  EXPECT_NE(a->result->error().what().find("hello"), std::string::npos);
}

TEST_F(RecoveryTest, ARefusalIsFinal) {
  server.welcoming = false;
  connect();
  const auto a = submit(getattr());
  server.settle();
  server.deliver(wire::encode_refused(Error(EACCES, "not for you")));
  EXPECT_EQ(a->code(), EACCES);
  EXPECT_EQ(server.connects, 1u);
}

TEST_F(RecoveryTest, ABusyServerIsAskedAgain) {
  server.welcoming = false;
  connect();
  const auto a = submit(getattr());
  server.settle();
  server.welcoming = true;
  server.deliver(wire::encode_refused(Error(EBUSY, "stopping")));
  loop.run_for(1s);
  server.reply(server.take_request().id, Reply{});
  EXPECT_TRUE(a->ok());
}

TEST_F(RecoveryTest, AServerThatBreaksTheProtocolIsLeftInTheEnd) {
  connect(5s);
  const auto a = submit(getattr());
  for (int i = 0; i < 1000 && !a->result; ++i) {
    loop.run_for(20ms);
    if (server.connected()) server.reply({3, 99}, Reply{});
  }
  ASSERT_TRUE(a->result);
  EXPECT_EQ(a->code(), ENOTCONN);
  EXPECT_LT(server.connects, 60u);
}

TEST_F(RecoveryTest, AReadIsDoneAgainFromTheStart) {
  connect();
  std::string large(9000, '-');
  const std::string source = pattern(9000);
  const auto a = submit(data(Op::read, 0, large));
  const auto first = server.take_request();
  server.deliver(wire::encode(wire::Data{first.id, wire::Part::stream, 0}, 4096),
                 std::string(4096, '?'));
  server.welcome.resumed = true;
  server.cut();
  const auto again = server.take_request();
  EXPECT_EQ(again.id, first.id);
  for (uint64_t at : {0u, 4096u, 8192u}) {
    const std::string part = source.substr(at, 4096);
    server.deliver(wire::encode(wire::Data{again.id, wire::Part::stream, at},
                                static_cast<uint32_t>(part.size())),
                   part);
  }
  server.reply(again.id, counted(9000));
  EXPECT_TRUE(a->ok());
  EXPECT_EQ(large, source);
}

TEST_F(RecoveryTest, AnAnswerThatArrivedBeforeTheCutCounts) {
  connect();
  std::string bytes = pattern(5000);
  const auto a = submit(data(Op::write, 0, bytes));
  const auto request = server.take_request();
  server.hold_sends = true;
  server.deliver(wire::encode(wire::Pull{request.id, wire::Part::stream, 0, 4096}));
  server.reply(request.id, Error(EDQUOT));
  server.cut();
  EXPECT_EQ(a->code(), EDQUOT);
}

TEST_F(RecoveryTest, PartsGoOnWithAnotherServer) {
  server.welcome.max_list_bytes = 1500 * wire::kBlockBytes;
  connect();
  std::vector<Extent> list;
  for (uint64_t i = 0; i < 4000; ++i) list.push_back({Offset(3 * i), Length(1)});
  std::string bytes = pattern(4000);
  const auto a = submit(data(Op::write, Extents::make(list).value(),
                             Memory::of(std::as_writable_bytes(std::span(bytes)))));
  server.reply(server.take_request().id, counted(1500));
  server.take_request();
  server.welcome.boot = 2;
  server.welcome.session = 8;
  server.welcome.max_list_bytes = 1100 * wire::kBlockBytes;
  server.cut();
  for (uint64_t n : {1100u, 1100u, 300u}) {
    const auto request = server.take_request();
    EXPECT_EQ(request.total, n);
    server.reply(request.id, counted(n));
  }
  ASSERT_TRUE(a->ok());
  EXPECT_EQ((*a->result)->count, 4000u);
}

TEST_F(RecoveryTest, CancelIsSentAgainToo) {
  connect();
  std::stop_source stop;
  Request request = remove("x");
  request.stop = stop.get_token();
  const auto a = submit(std::move(request));
  const auto sent = server.take_request();
  server.welcome.resumed = true;
  stop.request_stop();
  server.take();
  server.cut();
  EXPECT_EQ(server.take_request().id, sent.id);
  EXPECT_EQ(server.take().header.type, wire::FrameType::cancel);
  server.reply(sent.id, Error(ECANCELED));
  EXPECT_EQ(a->code(), ECANCELED);
}

TEST_F(RecoveryTest, CancelWithoutAServerIsAnsweredAtOnce) {
  connect(20s);
  std::stop_source stop;
  Request request = remove("x");
  request.stop = stop.get_token();
  const auto a = submit(std::move(request));
  const auto sent = server.take_request();
  server.there = false;
  server.cut();
  EXPECT_FALSE(a->result);
  stop.request_stop();
  server.settle();
  EXPECT_EQ(a->code(), ECANCELED);
  EXPECT_TRUE(a->unknown());

  // Its slot is its own until a server has heard of it.
  server.there = true;
  server.welcome.resumed = true;
  loop.run_for(5s);
  EXPECT_EQ(server.take_request().id, sent.id);
  server.reply(sent.id, Reply{});
  EXPECT_TRUE(a->unknown());
}

TEST_F(RecoveryTest, TheAddressIsAskedForEachTime) {
  connect();
  ASSERT_TRUE(store->root());
  const auto a = submit(getattr());
  server.cut();
  EXPECT_EQ(addresses_asked, 2u);
}

}  // namespace
}  // namespace forebay
