// The fault model of the simulated network.
#include "transport/sim_transport.h"

#include "transport/shared_region.h"
#include "transport/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

// A line per event: two runs of one seed must give the same.
std::string trace_of(uint64_t seed) {
  SimLoop loop(seed);
  SimOptions options;
  options.cut_chance = 0.05;
  SimNetwork network(loop, seed, options);
  const auto transport = network.transport("host");
  std::string trace;
  const auto note = [&](const std::string& what) {
    trace += std::to_string(loop.now().since_start.count()) + " " + what + "\n";
  };
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::unique_ptr<Recorder>> recorders;
  const auto add = [&](std::unique_ptr<Connection> c, const char* name) {
    recorders.push_back(std::make_unique<Recorder>(seed));
    recorders.back()->on_frame = [&note, name](const TestFrame& f) {
      note(std::string(name).append(f.message));
    };
    recorders.back()->when_closed = [&note, name] { note(std::string(name).append("closed")); };
    c->start(*recorders.back());
    connections.push_back(std::move(c));
  };
  const Address address{Address::Kind::simulated, "x", 0};
  auto listener = transport->listen(address, loop, [&](auto c) { add(std::move(c), "s "); });
  std::string payload(10000, 'p');
  for (int i = 0; i < 10; ++i) {
    transport->connect(address, loop, 1s, [&](auto c) {
      Connection& connection = **c;
      add(std::move(*c), "c ");
      for (int k = 0; k < 10; ++k) {
        connection.send(head_of(std::to_string(k), payload.size()), Memory::of(as_bytes(payload)));
      }
    });
  }
  loop.run_for(10s);
  return trace;
}

TEST(SimNetwork, IsDeterministicFromItsSeed) {
  const uint64_t seed = test_seed();
  const std::string first = trace_of(seed);
  EXPECT_EQ(first, trace_of(seed));
  EXPECT_NE(first, trace_of(seed + 1));
  EXPECT_NE(first.find("closed"), std::string::npos);
}

struct SimNetworkTest : testing::Test {
  SimWorld world;
  Pairs pairs{world};
  Recorder at_server, at_client;
  Pairs::Pair pair = pairs.make();

  void start() {
    pair.server->start(at_server);
    pair.client->start(at_client);
  }
};

TEST_F(SimNetworkTest, ACutLosesWhatIsUnderWayAndBothEndsHear) {
  start();
  int sent = 0;
  for (int i = 0; i < 20; ++i) {
    pair.client->send(head_of("m"), {}, [&](Result<void> r) { sent += r.has_value(); });
  }
  EXPECT_EQ(sent, 20);  // "the kernel took it"
  EXPECT_EQ(world.network.connections(), 1u);
  EXPECT_TRUE(world.network.cut());
  EXPECT_FALSE(world.network.cut());
  EXPECT_EQ(world.network.connections(), 0u);
  ASSERT_TRUE(world.run_until([&] { return at_client.closed && at_server.closed; }));
  EXPECT_EQ(at_client.closed->code(), ECONNRESET);
  EXPECT_TRUE(at_server.frames.empty());
}

TEST_F(SimNetworkTest, AKilledHostRefusesUntilItListensAgain) {
  start();
  const Address address = pairs.listener().address();
  world.network.kill("server");
  ASSERT_TRUE(world.run_until([&] { return at_client.closed && at_server.closed; }));
  std::optional<int> code;
  const auto connect = [&] {
    code.reset();
    world.client().connect(address, world.loop(), 1s,
                           [&](auto c) { code = c ? 0 : c.error().code(); });
    return world.run_until([&] { return code.has_value(); });
  };
  ASSERT_TRUE(connect());
  EXPECT_EQ(code, ECONNREFUSED);
  auto again = world.server().listen(address, world.loop(), [](auto) {});
  ASSERT_TRUE(again);
  ASSERT_TRUE(connect());
  EXPECT_EQ(code, 0);
}

TEST_F(SimNetworkTest, APartitionIsSilentUntilItHeals) {
  start();
  world.network.partition("server");
  pair.client->send(head_of("unheard"));
  std::optional<Error> error;
  world.client().connect(pairs.listener().address(), world.loop(), 1s,
                         [&](auto c) { error = std::move(c).error(); });
  world.run_for(10s);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ETIMEDOUT);
  EXPECT_FALSE(at_client.closed || at_server.closed);
  EXPECT_TRUE(at_server.frames.empty());
  world.network.heal("server");
  ASSERT_TRUE(world.run_until([&] { return at_client.closed && at_server.closed; }));
  EXPECT_TRUE(at_server.frames.empty());
  pairs.make();
}

TEST_F(SimNetworkTest, IdentityIsSettable) {
  Peer somebody;
  Caller caller;
  caller.uid = 4711;
  somebody.caller = std::make_shared<const Caller>(caller);
  somebody.may_speak_for_others = true;
  const auto other = world.network.transport("other", somebody);
  std::unique_ptr<Connection> at_listener, connected;
  auto listener = world.server().listen(world.address(), world.loop(),
                                        [&](auto c) { at_listener = std::move(c); });
  other->connect((*listener)->address(), world.loop(), 1s,
                 [&](auto c) { connected = std::move(*c); });
  ASSERT_TRUE(world.run_until([&] { return at_listener && connected; }));
  EXPECT_EQ(at_listener->peer().caller->uid, 4711u);
  EXPECT_TRUE(at_listener->peer().may_speak_for_others);
}

TEST(SimNetwork, FramesSurviveUntilRandomCutsAndNeverMixUp) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    SimOptions options;
    options.cut_chance = 0.02;
    options.window = 1 + random() % 100000;
    SimWorld world(options);
    Pairs pairs(world);
    auto pair = pairs.make();
    Recorder at_server(random()), at_client;
    pair.server->start(at_server);
    pair.client->start(at_client);
    std::vector<std::string> payloads;
    size_t called = 0;
    for (int i = 0; i < 30; ++i) payloads.push_back(random_bytes(random, random() % 60000));
    for (auto& p : payloads) {
      pair.client->send(head_of(std::to_string(&p - payloads.data()), p.size()),
                        Memory::of(as_bytes(p)), [&](Result<void>) { ++called; });
    }
    world.run_until([&] { return at_server.closed || at_server.frames.size() == 30; });
    for (size_t i = 0; i < at_server.frames.size(); ++i) {
      ASSERT_EQ(at_server.frames[i].message, std::to_string(i));
      ASSERT_EQ(at_server.frames[i].payload, payloads[i]);
    }
    if (at_server.closed) {
      ASSERT_TRUE(world.run_until([&] { return at_client.closed.has_value(); }));
      EXPECT_EQ(called, payloads.size());
    }
  }
}

TEST(SimNetwork, MemoryIsSharedAndLent) {
  SimWorld world;
  world.client_side = world.network.transport("client", 64_KiB);
  const auto lent = SharedPages::create(2 * SharedPages::kPage).value();
  world.client_side->lend(lent);
  Pairs pairs(world);
  auto pair = pairs.make();
  const auto ours = pair.client->shared(), theirs = pair.server->shared();
  ASSERT_TRUE(ours && theirs);
  EXPECT_EQ(ours->area().size(), 64_KiB);
  EXPECT_NE(ours->area().data(), theirs->area().data());
  ours->area()[4711] = std::byte{42};
  EXPECT_EQ(theirs->area()[4711], std::byte{42});
  EXPECT_EQ(ours->lent(), lent);
  theirs->lent()->bytes()[17] = std::byte{43};
  EXPECT_EQ(lent->bytes()[17], std::byte{43});
}

}  // namespace
}  // namespace forebay
