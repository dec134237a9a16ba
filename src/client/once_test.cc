// Requests that have a name for life (core/op.h, Once), seen from the client.
#include "client/testing.h"

namespace forebay {
namespace {

using OnceTest = ClientFixture;

Request add(const Request& like) {
  Request r = like;
  r.op = Op::attr_fetch_add;
  r.name = "n";
  r.right.bytes = "right";
  r.value = 1;
  return r;
}

TEST_F(OnceTest, NamesDifferAndLanesAreUsedAgain) {
  server.welcome.state = 5;
  connect();
  submit(add(getattr("f")));
  submit(add(getattr("f")));
  const auto a = server.take_request(), b = server.take_request();
  EXPECT_EQ(a.request.once.client, b.request.once.client);
  EXPECT_NE(a.request.once.lane, b.request.once.lane);
  EXPECT_EQ(a.request.once.sequence, 1u);
  server.reply(a.id, Reply{});
  submit(add(getattr("f")));
  const auto c = server.take_request();
  EXPECT_EQ(c.request.once.lane, a.request.once.lane);
  EXPECT_EQ(c.request.once.sequence, 2u);
  EXPECT_TRUE(submit(getattr("f")) != nullptr);
  EXPECT_EQ(server.take_request().request.once, Once{}) << "not for what may be done twice";
}

TEST_F(OnceTest, ARestartedServerThatRemembersGetsItAgain) {
  server.welcome.state = 5;
  connect();
  std::string bytes = pattern(100);
  const auto a = submit(add(getattr("f")));
  Request append = data(Op::write, 0, bytes);
  append.flags = kFlagAppend;
  const auto b = submit(append);
  const auto first = server.take_request(), second = server.take_request();
  server.welcome.boot = 2;
  server.welcome.session = 8;
  server.cut();
  const auto again = server.take_request(), again2 = server.take_request();
  EXPECT_EQ(again.request.once, first.request.once);
  EXPECT_EQ(again2.request.once, second.request.once);
  EXPECT_FALSE(again2.request.once == Once{});
  Reply reply;
  reply.value = 41;
  server.reply(again.id, reply);
  reply.count = 100;
  server.reply(again2.id, reply);
  ASSERT_TRUE(a->ok() && b->ok());
  EXPECT_EQ((*a->result)->value, 41u);
}

TEST_F(OnceTest, ANewStateKnowsNothing) {
  server.welcome.state = 5;
  connect();
  const auto a = submit(add(getattr("f")));
  server.take_request();
  server.welcome.boot = 2;
  server.welcome.session = 8;
  server.welcome.state = 6;
  server.cut();
  EXPECT_TRUE(a->unknown());
}

TEST_F(OnceTest, AServerThatHasForgottenTheSessionStillKnowsTheRequest) {
  server.welcome.state = 5;
  connect();
  const auto a = submit(add(getattr("f")));
  const auto first = server.take_request();
  server.welcome.session = 8;
  server.cut();
  const auto again = server.take_request();
  EXPECT_EQ(again.request.once, first.request.once);
  server.reply(again.id, Reply{});
  EXPECT_TRUE(a->ok());
}

// Sent over a connection that was lost, it may have been done; the one that says goodbye did not.
TEST_F(OnceTest, ASuccessorWithoutTheStateIsNotGivenIt) {
  server.welcome.state = 5;
  connect();
  const auto a = submit(add(getattr("f")));
  server.take_request();
  server.welcome.resumed = true;
  server.cut();
  server.take_request();
  server.welcome.resumed = false;
  server.welcome.boot = 2;
  server.welcome.session = 8;
  server.welcome.state = 6;
  server.deliver(wire::encode_goodbye("stopping", true));
  loop.run_for(std::chrono::seconds(1));
  EXPECT_TRUE(a->unknown());
}

TEST_F(OnceTest, ANameThatSomebodyElseGaveIsKept) {
  server.welcome.state = 5;
  connect();
  Request r = add(getattr("f"));
  r.once = {1, 2, 3, 4};
  submit(r);
  EXPECT_EQ(server.take_request().request.once, (Once{1, 2, 3, 4}));
}

}  // namespace
}  // namespace forebay
