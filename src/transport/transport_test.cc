// What every transport promises (transport.h): one suite over Unix sockets, TCP and the simulation.
#include "transport/transport.h"

#include "transport/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

template <class W>
class TransportTest : public testing::Test {
 protected:
  W world;
  Pairs pairs{world};
  const uint64_t seed = test_seed();
  std::mt19937_64 random{seed};

  TestFrame random_frame() {
    TestFrame frame;
    const bool large_message = random() % 16 == 0;
    frame.message = random_bytes(random, random() % (large_message ? 200000 : 600));
    if (random() % 2 == 0) {
      const bool bulk = random() % 8 == 0;
      frame.payload = random_bytes(random, random() % (bulk ? 3_MiB : 20000));
    }
    return frame;
  }
  // Sends it from scattered memory, which is overwritten as soon as it may be.
  static void send(Connection& c, const TestFrame& frame, std::mt19937_64& random) {
    auto memory = std::make_shared<TestMemory>(random, frame.payload.size());
    memory->put(frame.payload);
    c.send(head_of(frame.message, frame.payload.size()), memory->memory(),
           [memory](Result<void> r) {
             EXPECT_TRUE(r);
             memory->put(std::string(memory->memory().shape.total().value, 'x'));
           });
  }
};

using Worlds = testing::Types<UnixWorld, SharedWorld, TcpWorld, KeyedWorld, SimWorld>;
TYPED_TEST_SUITE(TransportTest, Worlds);

TYPED_TEST(TransportTest, EchoesFramesOfAllShapesInOrder) {
  auto pair = this->pairs.make();
  Recorder at_server(this->seed), at_client(this->seed + 1);
  std::mt19937_64 echo_random(this->seed + 2);
  at_server.on_frame = [&](const TestFrame& f) { this->send(*pair.server, f, echo_random); };
  pair.server->start(at_server);
  pair.client->start(at_client);
  std::vector<TestFrame> expected;
  for (int i = 0; i < 120; ++i) {
    expected.push_back(this->random_frame());
    this->send(*pair.client, expected.back(), this->random);
    if (this->random() % 4 == 0) this->world.loop().run_one(0ms);
  }
  ASSERT_TRUE(this->world.run_until([&] { return at_client.frames.size() == expected.size(); }));
  EXPECT_TRUE(at_client.frames == expected);
  EXPECT_TRUE(at_server.frames == expected);
  EXPECT_EQ(pair.client->unsent(), 0u);
  EXPECT_FALSE(at_client.closed || at_server.closed);
}

TYPED_TEST(TransportTest, LargestMessageAndPayload) {
  auto pair = this->pairs.make();
  Recorder at_server(this->seed), at_client;
  pair.server->start(at_server);
  pair.client->start(at_client);
  std::vector<TestFrame> expected;
  for (int i = 0; i < 2; ++i) {
    expected.push_back({random_bytes(this->random, wire::kMaxMessage),
                        random_bytes(this->random, wire::kMaxPayload)});
    this->send(*pair.client, expected.back(), this->random);
    expected.push_back({"", ""});
    this->send(*pair.client, expected.back(), this->random);
  }
  ASSERT_TRUE(this->world.run_until([&] { return at_server.frames.size() == expected.size(); }));
  EXPECT_TRUE(at_server.frames == expected);
}

TYPED_TEST(TransportTest, UnsentShowsBackpressureAndSentComesWhenTaken) {
  auto pair = this->pairs.make();
  Recorder at_server, at_client;
  pair.client->start(at_client);
  std::string payload(8_MiB, 'p');
  std::vector<int> sent;
  for (int i = 0; i < 3; ++i) {
    pair.client->send(head_of("m", payload.size()), Memory::of(as_bytes(payload)),
                      [&, i](Result<void> r) {
                        EXPECT_TRUE(r);
                        sent.push_back(i);
                      });
  }
  EXPECT_LT(sent.size(), 3u);
  EXPECT_GT(pair.client->unsent(), 0u);
  pair.server->start(at_server);  // only now somebody reads
  EXPECT_TRUE(this->world.run_until([&] { return at_server.frames.size() == 3; }));
  EXPECT_TRUE(this->world.run_until([&] { return sent.size() == 3; }));
  EXPECT_EQ(sent, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(pair.client->unsent(), 0u);
}

TYPED_TEST(TransportTest, CloseTellsBothEndsOnceAndLast) {
  auto pair = this->pairs.make();
  Recorder at_server, at_client;
  pair.server->start(at_server);
  pair.client->start(at_client);
  pair.client->close(Error(ECANCELED, "enough"));
  pair.client->close(Error(EIO, "not this one"));
  EXPECT_FALSE(at_client.closed);  // from the loop, not from inside
  ASSERT_TRUE(this->world.run_until([&] { return at_client.closed && at_server.closed; }));
  EXPECT_EQ(*at_client.closed, Error(ECANCELED, "enough"));
  EXPECT_EQ(at_server.closed->code(), ECONNRESET);
  EXPECT_NE(at_server.closed->what().find("closed by peer"), std::string::npos);
  std::optional<Error> late;
  pair.client->send(head_of("late"), {}, [&](Result<void> r) { late = r.error(); });
  EXPECT_TRUE(late);
}

TYPED_TEST(TransportTest, CloseDuringSendFailsWhatWasNotSentBeforeOnClosed) {
  auto pair = this->pairs.make();
  Recorder at_client;
  pair.client->start(at_client);
  std::string payload(16_MiB, 'p');
  int done = 0, failed = 0;
  for (int i = 0; i < 4; ++i) {
    pair.client->send(head_of("m", payload.size()), Memory::of(as_bytes(payload)),
                      [&](Result<void> r) {
                        EXPECT_FALSE(at_client.closed);
                        ++(r ? done : failed);
                      });
  }
  this->world.loop().run_one(1ms);
  pair.client->close(Error(ECANCELED));
  ASSERT_TRUE(this->world.run_until([&] { return at_client.closed.has_value(); }));
  EXPECT_EQ(done + failed, 4);
  EXPECT_GT(failed, 0);
}

TYPED_TEST(TransportTest, PeerGoneDuringSendFailsTheSends) {
  auto pair = this->pairs.make();
  Recorder at_client;
  pair.client->start(at_client);
  std::string payload(16_MiB, 'p');
  int failed = 0;
  for (int i = 0; i < 2; ++i) {
    pair.client->send(head_of("m", payload.size()), Memory::of(as_bytes(payload)),
                      [&](Result<void> r) { failed += !r; });
  }
  this->world.loop().run_one(1ms);
  pair.server.reset();
  ASSERT_TRUE(this->world.run_until([&] { return at_client.closed.has_value(); }));
  EXPECT_EQ(at_client.closed->code(), ECONNRESET);
  EXPECT_EQ(failed, 2);
}

TYPED_TEST(TransportTest, WhatWasSentBeforeCloseStillArrives) {
  auto pair = this->pairs.make();
  Recorder at_server, at_client;
  at_server.on_frame = [&](const TestFrame&) {
    pair.server->send(head_of("refused"));
    pair.server->close(Error(EPERM));
  };
  pair.server->start(at_server);
  pair.client->start(at_client);
  pair.client->send(head_of("hello"));
  ASSERT_TRUE(this->world.run_until([&] { return at_client.closed && at_server.closed; }));
  ASSERT_EQ(at_client.frames.size(), 1u);
  EXPECT_EQ(at_client.frames[0].message, "refused");
}

TYPED_TEST(TransportTest, AnErrorOfTheHandlerClosesWithIt) {
  auto pair = this->pairs.make();
  Recorder at_server, at_client;
  at_server.refuse = [&](const wire::FrameHeader&) { return Error(E2BIG, "no room"); };
  pair.server->start(at_server);
  pair.client->start(at_client);
  std::string payload(100000, 'p');
  pair.client->send(head_of("m", payload.size()), Memory::of(as_bytes(payload)));
  ASSERT_TRUE(this->world.run_until([&] { return at_client.closed && at_server.closed; }));
  EXPECT_EQ(*at_server.closed, Error(E2BIG, "no room"));
  EXPECT_TRUE(at_server.frames.empty());
}

TYPED_TEST(TransportTest, AHandlerMayDestroyItsConnectionInAnyCall) {
  for (const std::string where : {"message", "payload", "refuse", "sent", "sent-error", "closed"}) {
    SCOPED_TRACE(where);
    auto pair = this->pairs.make();
    Recorder at_server, at_client;
    bool happened = false;
    const auto destroy = [&] {
      happened = true;
      pair.server.reset();
    };
    at_server.on_frame = [&](const TestFrame&) {
      if (where == "message" || where == "payload") destroy();
      if (where == "sent") {
        pair.server->send(head_of("a"), {}, [&](Result<void>) { destroy(); });
        if (pair.server) pair.server->send(head_of("b"), {}, [&](Result<void>) { ADD_FAILURE(); });
      }
    };
    std::string large(16_MiB, 'x');
    if (where == "sent-error") {
      at_server.on_frame = [&](const TestFrame&) {
        pair.server->send(head_of("m", large.size()), Memory::of(as_bytes(large)),
                          [&](Result<void> r) {
                            if (!r) destroy();
                          });
        pair.server->close(Error(ECANCELED));
      };
      at_server.when_closed = [] { ADD_FAILURE(); };
    }
    if (where == "closed") {
      at_server.on_frame = [&](const TestFrame&) { pair.server->close(Error(ECANCELED)); };
      at_server.when_closed = destroy;
    }
    if (where == "refuse") {
      at_server.refuse = [&](const wire::FrameHeader&) { return destroy(), Error(EIO); };
    }
    pair.server->start(at_server);
    pair.client->start(at_client);
    std::string payload(where == "payload" ? 50000 : 0, 'p');
    for (int i = 0; i < 3; ++i) {
      pair.client->send(head_of(where, payload.size()), Memory::of(as_bytes(payload)));
    }
    ASSERT_TRUE(this->world.run_until([&] { return happened && at_client.closed; }));
    EXPECT_LE(at_server.frames.size(), 3u);
  }
}

TYPED_TEST(TransportTest, ConnectionsMayBeDestroyedUnstartedAndUnread) {
  for (int i = 0; i < 5; ++i) {
    auto pair = this->pairs.make();
    pair.client->send(head_of("into the void"));
    (i % 2 ? pair.client : pair.server).reset();
    this->world.loop().run_one(1ms);
  }
}

TYPED_TEST(TransportTest, ClosedBeforeStartIsToldAfterStart) {
  auto pair = this->pairs.make();
  pair.client->close(Error(ECANCELED, "early"));
  this->world.run_for(5ms);
  Recorder at_client;
  pair.client->start(at_client);
  ASSERT_TRUE(this->world.run_until([&] { return at_client.closed.has_value(); }));
  EXPECT_EQ(at_client.closed->what(), "early");
}

TYPED_TEST(TransportTest, TwoHundredConnections) {
  constexpr int kCount = 200;
  std::vector<Pairs::Pair> all(kCount);
  std::vector<std::unique_ptr<Recorder>> servers, clients;
  for (auto& pair : all) {
    pair = this->pairs.make();
    Connection& back = *pair.server;
    servers.push_back(std::make_unique<Recorder>());
    servers.back()->on_frame = [&back](const TestFrame& f) { back.send(head_of(f.message)); };
    clients.push_back(std::make_unique<Recorder>());
    pair.server->start(*servers.back());
    pair.client->start(*clients.back());
  }
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < kCount; ++i) all[i].client->send(head_of(std::to_string(i)));
  }
  ASSERT_TRUE(this->world.run_until([&] {
    return std::all_of(clients.begin(), clients.end(),
                       [](const auto& c) { return c->frames.size() == 5; });
  }));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(clients[i]->frames[4].message, std::to_string(i));
}

TYPED_TEST(TransportTest, MoveKeepsBytesAndOrderAndNeedsAStart) {
  auto pair = this->pairs.make();
  Recorder at_client, at_server;
  pair.client->start(at_client);
  int moves = 0;
  bool moving = false;
  at_server.on_frame = [&](const TestFrame&) {
    if (std::exchange(moving, true)) return;
    this->world.loop().post([&] {
      Connection::move(std::move(pair.server), this->world.loop(),
                       [&](std::unique_ptr<Connection> c) {
                         ++moves;
                         moving = false;
                         pair.server = std::move(c);
                         pair.server->start(at_server);
                       });
    });
  };
  pair.server->start(at_server);
  std::vector<TestFrame> expected;
  for (int i = 0; i < 50; ++i) {
    expected.push_back(this->random_frame());
    this->send(*pair.client, expected.back(), this->random);
    this->world.run_until([] { return false; }, 100us);
  }
  ASSERT_TRUE(this->world.run_until([&] { return at_server.frames.size() == expected.size(); }));
  EXPECT_TRUE(at_server.frames == expected);
  EXPECT_TRUE(this->world.run_until([&] { return !moving; }));
  EXPECT_GT(moves, 0);
  pair.client.reset();
  EXPECT_TRUE(this->world.run_until([&] { return at_server.closed.has_value(); }));
}

TYPED_TEST(TransportTest, ConnectWhereNobodyListensIsRefused) {
  Address nowhere = this->pairs.listener().address();
  {
    Pairs gone(this->world);
    nowhere = gone.listener().address();
  }
  std::optional<Error> error;
  this->world.client().connect(nowhere, this->world.loop(), 5s,
                               [&](auto c) { error = std::move(c).error(); });
  EXPECT_FALSE(error);  // from the loop, not from inside
  ASSERT_TRUE(this->world.run_until([&] { return error.has_value(); }));
  EXPECT_TRUE(error->code() == ECONNREFUSED || error->code() == ENOENT);
  EXPECT_NE(error->what().find(nowhere.text()), std::string::npos);
}

TYPED_TEST(TransportTest, ListeningTwiceOnOneAddressIsInUse) {
  const Address taken = this->pairs.listener().address();
  auto second = this->world.server().listen(taken, this->world.loop(), [](auto) {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), EADDRINUSE);
  EXPECT_NE(second.error().what().find(taken.text()), std::string::npos);
  this->pairs.make();  // the first one still works
}

TYPED_TEST(TransportTest, PeersAreWhoTheyAre) {
  auto pair = this->pairs.make();
  ASSERT_TRUE(pair.server->peer().caller);
  EXPECT_EQ(pair.server->peer().caller->uid, this_process_caller()->uid);
  EXPECT_FALSE(pair.server->peer().where.empty());
  EXPECT_FALSE(pair.client->peer().where.empty());
}

}  // namespace
}  // namespace forebay
