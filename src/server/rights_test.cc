// Which rights a session holds, and when the Store may close them.
#include <gtest/gtest.h>

#include <deque>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

Request close_of(const OpenFile& file) {
  Request r = request(Op::close, file.handle);
  r.right = file.right;
  return r;
}

Request resize_of(const OpenFile& file, uint64_t size) {
  Request r = request(Op::resize, file.handle);
  r.right = file.right;
  r.length = Length(size);
  return r;
}

void delay(SimServer& sim, Op op, Duration by) {
  sim.store->add({.op = op, .action = FaultRule::Action::delay, .delay = by});
}

TEST(Rights, AreClosedWithTheSession) {
  SimServer sim(test_seed());
  auto a = sim.client(), b = sim.client("other");
  const OpenFile f = create(*a, "f");
  create(*a, "g");
  EXPECT_EQ(sim.memory->open_rights(), 2u);
  a->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
  // A right shown again by another session is open again, and that session's to close.
  EXPECT_EQ(b->call(data_request(Op::write, f, range(0, 3)), "abc")->error(), 0);
  EXPECT_EQ(sim.memory->open_rights(), 1u);
  b->hang_up();
  sim.loop.run_for(29s);
  EXPECT_EQ(sim.memory->open_rights(), 1u);
  sim.loop.run_for(5s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

// A right that was closed and is presented again opens the file again.
TEST(Rights, PresentedByARequestThatNeverEndsAreClosedToo) {
  SimServer sim(test_seed());
  auto client = sim.client();
  const OpenFile f = create(*client, "f");
  client->call(close_of(f));
  EXPECT_EQ(sim.memory->open_rights(), 0u);
  client->auto_pull = false;
  client->send(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000));
  ASSERT_TRUE(sim.loop.run_until([&] { return !client->pulls.empty(); }, 5s));
  client->answer(client->pulls.front());
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.memory->open_rights(), 1u);
  client->hang_up();
  sim.loop.run_for(40s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

// Whatever the Store does with a right after its close opens the file again.
TEST(Rights, WhatAClosePassesKeepsItsRightOpenAndNoLonger) {
  const auto begin = [](RawClient& client, const OpenFile& f, int kind) {
    if (kind == 0) return client.send(data_request(Op::write, f, range(0, 100)), pattern(1, 100));
    if (kind == 1) {
      return client.send(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000), true);
    }
    if (kind == 2) return client.send(data_request(Op::read, f, range(0, 100)));
    return client.send(resize_of(f, 7));
  };
  for (const bool named : {true, false}) {
    for (int kind = 0; kind < 4; ++kind) {
      SCOPED_TRACE(fmt::format("kind {}, {} a name", kind, named ? "with" : "without"));
      SimServer sim(test_seed());
      auto client = sim.client();
      const OpenFile f = create(*client, "f");
      if (!named) client->call(request(Op::remove, client->welcome.root, "f"));
      for (const Op op : {Op::write, Op::read, Op::resize}) delay(sim, op, 1s);
      const auto passed = begin(*client, f, kind);
      sim.loop.run_for(100ms);
      EXPECT_EQ(client->call(close_of(f))->error(), 0);
      EXPECT_FALSE(passed->done());
      EXPECT_EQ(sim.memory->open_rights(), 1u);
      EXPECT_EQ(client->call(close_of(f))->error(), 0) << "once more";
      EXPECT_EQ(client->wait(passed).error(), 0);
      sim.loop.run_for(100ms);
      EXPECT_EQ(sim.memory->open_rights(), 0u);
      EXPECT_EQ(sim.store->calls(Op::close), 1u);
    }
  }
}

TEST(Rights, AWriteThatWaitsForItsTurnKeepsItsRightToo) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  delay(sim, Op::write, 1s);
  const auto first = b->send(data_request(Op::write, f, range(0, 100)), pattern(1, 100));
  sim.loop.run_for(100ms);
  const auto second = a->send(data_request(Op::write, f, range(50, 100)), pattern(2, 100));
  EXPECT_EQ(a->call(close_of(f))->error(), 0);
  EXPECT_EQ(b->call(close_of(f))->error(), 0);
  EXPECT_EQ(b->wait(first).error(), 0);
  EXPECT_FALSE(second->done());
  EXPECT_EQ(sim.memory->open_rights(), 1u);
  EXPECT_EQ(a->wait(second).error(), 0);
  sim.loop.run_for(100ms);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

TEST(Rights, ManyFilesThatAreWrittenAndClosedWithoutWaitingNeverHoldMany) {
  SimServer sim(test_seed());
  auto client = sim.client();
  delay(sim, Op::write, 5ms);
  constexpr size_t kOut = 16;
  std::deque<RawClient::CallRef> out;
  size_t most = 0;
  for (int i = 0; i < 500; ++i) {
    const OpenFile f = create(*client, numbered("f", i));
    const uint64_t size = i % 8 ? 100 : 20000;
    out.push_back(client->send(data_request(Op::write, f, range(0, size)), pattern(1, size)));
    out.push_back(client->send(close_of(f)));
    for (; out.size() > kOut; out.pop_front()) {
      EXPECT_EQ(client->wait(out.front()).error(), 0);
    }
    most = std::max(most, sim.memory->open_rights());
  }
  sim.loop.run_for(1s);
  EXPECT_GT(most, 1u) << "or nothing has been passed";
  EXPECT_LE(most, kOut);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

TEST(Rights, OfASessionThatEndsWithFlightsOutAreClosedOnce) {
  SimServer sim(test_seed());
  auto client = sim.client();
  const OpenFile closed = create(*client, "closed"), open = create(*client, "open");
  delay(sim, Op::write, 5s);
  client->send(data_request(Op::write, closed, range(0, 100)), pattern(1, 100));
  client->send(data_request(Op::write, open, range(0, 100)), pattern(1, 100));
  client->call(close_of(closed));
  client->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.memory->open_rights(), 2u);
  sim.loop.run_for(10s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
  EXPECT_EQ(sim.store->calls(Op::close), 2u);
}

// What a session holds is closed when it ends: that tells what it had remembered.
TEST(Rights, RubbishIsNotRemembered) {
  SimServer sim(test_seed());
  auto client = sim.client();
  const OpenFile f = create(*client, "f");
  for (int i = 0; i < 100; ++i) {
    OpenFile forged = f;
    if (i % 2) {
      forged.right.bytes = pattern(static_cast<uint64_t>(i), 48);
    } else {
      char& byte = forged.right.bytes[static_cast<size_t>(i) % forged.right.bytes.size()];
      byte = static_cast<char>(byte ^ (1 + i));
    }
    EXPECT_EQ(client->call(data_request(Op::write, forged, range(0, 3)), "abc")->error(), EBADF);
    EXPECT_EQ(
        client->call(data_request(Op::write, forged, range(0, 90000)), pattern(1, 90000))->error(),
        EBADF);
    EXPECT_EQ(client->call(data_request(Op::read, forged, range(0, 3)))->error(), EBADF);
    EXPECT_EQ(client->call(resize_of(forged, 5))->error(), EBADF);
    client->call(data_request(Op::commit, forged, {}));  // whatever it says
  }
  EXPECT_EQ(client->call(data_request(Op::write, f, range(0, 3)), "abc")->error(), 0);
  client->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.store->calls(Op::close), 1u);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

TEST(Rights, AreClosedWithTheLastSessionThatHoldsThem) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b"), c = sim.client("c");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(b->call(data_request(Op::write, f, range(0, 3)), "abc")->error(), 0);
  const Request close = close_of(f);
  EXPECT_EQ(a->call(request(Op::remove, a->welcome.root, "f"))->error(), 0);
  EXPECT_EQ(a->call(close)->error(), 0);
  EXPECT_EQ(c->call(close)->error(), 0);  // not c's to close
  EXPECT_EQ(sim.memory->open_rights(), 1u);
  EXPECT_EQ(read_back(*b, f, 3), "abc");  // without a name, and still there
  EXPECT_EQ(c->call(data_request(Op::write, f, range(0, 1)), "x")->error(), 0);
  EXPECT_EQ(b->call(close)->error(), 0);
  EXPECT_EQ(sim.memory->open_rights(), 1u);
  c->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
  EXPECT_EQ(b->call(data_request(Op::read, f, range(0, 3)))->error(), ESTALE);
}

}  // namespace
}  // namespace forebay::server
