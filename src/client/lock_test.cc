// Locks as a client keeps them: slots that stay free, and what is reclaimed from a restarted
// server.
#include "client/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

class LockTest : public ClientFixture {
 protected:
  static Request lock(uint64_t offset, uint64_t length, uint32_t flags = 0, uint64_t owner = 1) {
    Request r;
    r.op = Op::lock;
    r.handle.bytes = "file";
    r.right.bytes = "right";
    r.offset = Offset(offset);
    r.length = Length(length);
    r.flags = flags;
    r.cookie = owner;
    return r;
  }
  static Request unlock(uint64_t offset, uint64_t length, uint64_t owner = 1) {
    Request r = lock(offset, length, 0, owner);
    r.op = Op::unlock;
    r.right = {};
    return r;
  }
  void grant() { server.reply(server.take_request().id, Reply{}); }
  void restart() {
    ++server.welcome.boot;
    ++server.welcome.session;
    server.cut();
  }
};

// The server has four slots: one may wait.
TEST_F(LockTest, LocksThatWaitLeaveSlotsFree) {
  connect();
  for (uint64_t i = 0; i < 3; ++i) submit(lock(0, 1, kFlagWait, i));
  const auto first = server.take_request();
  EXPECT_TRUE(first.request.flags & kFlagWait);
  for (int i = 0; i < 2; ++i) {
    const auto tried = server.take_request();
    EXPECT_FALSE(tried.request.flags & kFlagWait);
    server.reply(tried.id, Error(EAGAIN));
  }
  EXPECT_TRUE(server.frames.empty());
  submit(getattr());
  grant();
  loop.run_for(50ms);
  server.reply(first.id, Reply{});
  EXPECT_TRUE(order[0]->ok());
  // The next may wait now.
  bool waits = false;
  for (int i = 0; i < 2; ++i) {
    const auto again = server.take_request();
    waits |= (again.request.flags & kFlagWait) != 0;
    if (!(again.request.flags & kFlagWait)) server.reply(again.id, Error(EAGAIN));
    loop.run_for(50ms);
  }
  while (!server.frames.empty()) server.reply(server.take_request().id, Reply{});
}

TEST_F(LockTest, ATryThatDoesNotWaitFails) {
  connect();
  const auto a = submit(lock(0, 1));
  server.reply(server.take_request().id, Error(EAGAIN));
  EXPECT_EQ(a->code(), EAGAIN);
}

TEST_F(LockTest, WhatIsHeldIsReclaimedBeforeAnythingElse) {
  connect();
  submit(lock(0, 100)), grant();
  submit(lock(20, 10, kFlagShared)), grant();
  submit(unlock(50, 0)), grant();
  submit(lock(0, 0, kFlagWhole, 2)), grant();
  submit(getattr());
  server.take_request();
  restart();
  struct Seen {
    uint64_t offset, length;
    uint32_t flags;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen;
  for (int i = 0; i < 4; ++i) {
    const auto m = server.take_request();
    EXPECT_EQ(m.request.op, Op::lock);
    seen.push_back({m.request.offset.value, m.request.length.value, m.request.flags});
    server.reply(m.id, Reply{});
  }
  EXPECT_EQ(seen, (std::vector<Seen>{{20, 10, kFlagReclaim | kFlagShared},
                                     {0, 20, kFlagReclaim},
                                     {30, 20, kFlagReclaim},
                                     {0, 0, kFlagReclaim | kFlagWhole}}));
  grant();
  EXPECT_TRUE(order.back()->ok());
}

TEST_F(LockTest, ALockThatIsLostIsToldOnce) {
  connect();
  submit(lock(0, 10)), grant();
  submit(lock(0, 10, 0, 2)), grant();
  submit(getattr());
  server.take_request();
  restart();
  server.reply(server.take_request().id, Error(ENOLCK));
  grant();
  grant();
  const auto told = submit(unlock(0, 10));
  grant();  // of what may be left of it
  EXPECT_EQ(told->code(), EIO);
  const auto again = submit(unlock(0, 10));
  grant();
  EXPECT_TRUE(again->ok());
  const auto other = submit(unlock(0, 10, 2));
  grant();
  EXPECT_TRUE(other->ok());
}

TEST_F(LockTest, TwoRestartsReclaimOnce) {
  connect();
  submit(lock(0, 10)), grant();
  submit(getattr());
  server.take_request();
  restart();
  EXPECT_EQ(server.frames.size(), 2u);  // the reclaim and the getattr, unanswered
  server.frames.clear();
  restart();
  loop.run_for(100ms);
  const auto m = server.take_request();
  EXPECT_TRUE(m.request.flags & kFlagReclaim);
  server.reply(m.id, Reply{});
  EXPECT_EQ(server.take_request().request.op, Op::getattr);
  EXPECT_TRUE(server.frames.empty());
}

TEST_F(LockTest, WhoHoldsALockComesBackByItself) {
  connect();
  submit(lock(0, 10)), grant();
  restart();
  loop.run_for(1s);
  const auto m = server.take_request();
  EXPECT_TRUE(m.request.flags & kFlagReclaim);
  server.reply(m.id, Reply{});
  submit(unlock(0, 10)), grant();
  EXPECT_TRUE(order.back()->ok());
  const auto before = server.connects;
  server.cut();
  loop.run_for(1h);
  EXPECT_EQ(server.connects, before) << "nothing is held";
}

// A claim says in which life of the server, and for which owner there, the lock was granted,
// however many lives do not answer it.
TEST_F(LockTest, AClaimStaysAsOldAsItIs) {
  connect();
  const auto granted = [](uint64_t life, uint64_t owner) {
    Reply reply;
    reply.value = life;
    reply.verifier = owner;
    return reply;
  };
  submit(lock(0, 10)), server.reply(server.take_request().id, granted(1, 77));
  submit(lock(10, 10, kFlagShared)), server.reply(server.take_request().id, granted(1, 77));
  restart();
  loop.run_for(1s);
  auto first = server.take_request(), second = server.take_request();
  EXPECT_EQ(first.request.value, 1u);
  EXPECT_EQ(second.request.expected, 77u);
  server.reply(first.id, granted(2, 78));
  restart();
  loop.run_for(1s);
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> seen;
  for (int i = 0; i < 2; ++i) {
    const auto m = server.take_request();
    seen[m.request.offset.value] = {m.request.value, m.request.expected};
    server.reply(m.id, granted(3, 79));
  }
  EXPECT_EQ(seen[first.request.offset.value], std::pair(uint64_t(2), uint64_t(78)));
  EXPECT_EQ(seen[second.request.offset.value], std::pair(uint64_t(1), uint64_t(77)));
}

// So that the server sees each of them wait, now and then.
TEST_F(LockTest, AllHaveTheirTurnToWait) {
  connect();
  for (uint64_t owner = 1; owner <= 3; ++owner) submit(lock(0, 1, kFlagWait, owner));
  std::vector<uint64_t> waited;
  wire::RequestId waits;
  const auto answer = [&](bool grants) {
    while (!server.frames.empty()) {
      if (server.frames.front().header.type == wire::FrameType::cancel) {
        server.frames.pop_front();
        server.reply(waits, Error(ECANCELED));
        continue;
      }
      const auto m = server.take_request();
      const bool wait = (m.request.flags & kFlagWait) != 0;
      if (wait) waited.push_back(m.request.cookie), waits = m.id;
      if (grants) server.reply(m.id, Reply{});
      if (!grants && !wait) server.reply(m.id, Error(EAGAIN));
    }
    loop.run_for(5ms);
  };
  for (const Time end = loop.now() + 20s; loop.now() < end;) answer(false);
  ASSERT_GE(waited.size(), 9u);
  EXPECT_LE(waited.size(), 11u);
  for (size_t i = 0; i < waited.size(); ++i) EXPECT_EQ(waited[i], i % 3 + 1);
  server.reply(waits, Reply{});
  for (int i = 0; i < 20; ++i) answer(true);
  for (const auto& one : order) EXPECT_TRUE(one->ok());
}

class GivesWay : public LockTest {
 protected:
  // Two want it. Until the first, which waits, is asked to give way.
  void SetUp() override {
    connect();
    Request first = lock(0, 1, kFlagWait, 1);
    first.stop = stop.get_token();
    submit(std::move(first));
    submit(lock(0, 1, kFlagWait, 2));
    waits = server.take_request().id;
    for (;;) {
      if (server.frames.empty()) loop.run_for(20ms);
      if (server.frames.front().header.type == wire::FrameType::cancel) break;
      server.reply(server.take_request().id, Error(EAGAIN));
    }
    server.frames.pop_front();
    tried = server.take_request().id;
  }
  void grant_next() {
    server.reply(tried, Error(EAGAIN));
    loop.run_for(50ms);
    const auto next = server.take_request();
    EXPECT_TRUE(next.request.flags & kFlagWait);
    EXPECT_EQ(next.request.cookie, 2u);
    server.reply(next.id, Reply{});
    EXPECT_TRUE(order[1]->ok());
  }

  std::stop_source stop;
  wire::RequestId waits, tried;
};

TEST_F(GivesWay, UnlessItIsGranted) {
  server.reply(waits, Reply{});
  EXPECT_TRUE(order[0]->ok());
  grant_next();
}

TEST_F(GivesWay, OrIsGivenUp) {
  stop.request_stop();
  loop.run_for(5ms);
  EXPECT_EQ(server.take().header.type, wire::FrameType::cancel);
  server.reply(waits, Error(ECANCELED));
  EXPECT_EQ(order[0]->code(), ECANCELED);
  grant_next();
}

// It comes back to a server that knows it still, or to one that does not.
TEST_F(GivesWay, WhenTheConnectionIsLost) {
  for (const bool resumed : {true, false}) {
    server.welcome.resumed = resumed;
    server.welcome.session += !resumed;
    server.cut();
    loop.run_for(50ms);
    for (int i = 0; i < 2; ++i) {
      const auto m = server.take_request();
      if (!(m.request.flags & kFlagWait)) {
        server.reply(m.id, Error(EAGAIN));
        continue;
      }
      EXPECT_EQ(m.request.cookie, resumed ? 1u : 2u);
      waits = m.id;
      if (!resumed) continue;
      EXPECT_EQ(server.take().header.type, wire::FrameType::cancel) << "it was not heard, perhaps";
    }
  }
  server.reply(waits, Reply{});
  EXPECT_TRUE(order[1]->ok());
}

TEST_F(LockTest, CancelsOneThatIsTriedFromTimeToTime) {
  connect();
  submit(lock(0, 1, kFlagWait, 1));
  std::stop_source stop;
  Request r = lock(0, 1, kFlagWait, 2);
  r.stop = stop.get_token();
  const auto tried = submit(std::move(r));
  const auto first = server.take_request();
  server.reply(server.take_request().id, Error(EAGAIN));
  stop.request_stop();
  loop.run_for(50ms);
  EXPECT_EQ(tried->code(), ECANCELED);
  server.reply(first.id, Reply{});
}

}  // namespace
}  // namespace forebay
