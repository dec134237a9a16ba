// What happens in time: grace, stall, deadline, a back end that never answers, stop, crash, status.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

TEST(Grace, FreesWhatADeadClientHeld) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  a->auto_pull = false;
  a->send(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000));
  ASSERT_TRUE(sim.loop.run_until([&] { return a->pulls.size() == 4; }, 5s));
  a->answer(a->pulls.front());
  sim.loop.run_for(1s);
  auto other = b->send(data_request(Op::write, f, range(0, 100)), pattern(2, 100));
  sim.loop.run_for(1s);
  EXPECT_FALSE(other->done());
  a->hang_up();
  sim.loop.run_for(20s);
  EXPECT_FALSE(other->done());
  EXPECT_EQ(b->wait(other).reply().count, 100u);
  EXPECT_EQ(read_back(*b, f, 16_KiB), pattern(2, 100) + pattern(1, 16_KiB).substr(100));
}

TEST(Stall, CutsOffAClientThatOwesData) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  a->auto_pull = false;
  a->send(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000));
  sim.loop.run_for(1s);
  auto other = b->send(data_request(Op::write, f, range(0, 100)), pattern(2, 100));
  EXPECT_TRUE(sim.loop.run_until([&] { return a->closed; }, 40s));
  ASSERT_TRUE(a->refused.has_value());
  EXPECT_EQ(a->refused->code(), ETIMEDOUT);
  // It may still come back; nobody else waits longer than the grace.
  EXPECT_EQ(b->wait(other, 40s).reply().count, 100u);
}

TEST(Stall, CutsOffAClientThatDoesNotRead) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  const std::string data = pattern(1, 2_MiB);
  b->call(data_request(Op::write, f, range(0, data.size())), data);
  a->send(data_request(Op::read, f, range(0, data.size())));
  sim.loop.run_for(2ms);
  sim.net.partition("a");
  auto write = b->send(data_request(Op::write, f, range(0, 100)), pattern(2, 100));
  EXPECT_EQ(b->wait(write, 100s).reply().count, 100u);
}

// Whoever reconnects whenever it is cut off, or before, does not keep others waiting for ever.
TEST(Stall, IsCountedAcrossConnections) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  a->auto_pull = false;
  const Time began = sim.loop.now();
  auto write = a->send(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000));
  sim.loop.run_for(1s);
  auto other = b->send(data_request(Op::write, f, range(0, 100)), pattern(2, 100));
  for (int i = 0; i < 20 && !other->done(); ++i) {
    sim.loop.run_for(20s);
    a->hang_up();
    a->resume();
  }
  EXPECT_EQ(b->wait(other, 1s).error(), 0);
  EXPECT_EQ(a->wait(write, 1s).error(), ETIMEDOUT);
  EXPECT_LT(sim.loop.now() - began, 120s);
}

TEST(Deadline, AnswersForABackEndThatDoesNot) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  sim.store->add({.op = Op::write, .action = FaultRule::Action::hold});
  auto stuck = a->send(data_request(Op::write, f, range(0, 100)), pattern(1, 100));
  auto bulk = a->send(data_request(Op::write, f, range(1000, 100000)), pattern(1, 100000));
  sim.loop.run_for(1s);
  auto behind = b->send(data_request(Op::read, f, range(0, 100)));
  EXPECT_EQ(a->wait(stuck).error(), ETIMEDOUT);
  EXPECT_TRUE(stuck->result->error().is_outcome_unknown());
  EXPECT_EQ(a->wait(bulk).error(), ETIMEDOUT);
  EXPECT_EQ(b->wait(behind, 200s).error(), ETIMEDOUT);
  EXPECT_FALSE(behind->result->error().is_outcome_unknown());
  // The slots are free, the reservation is not: the call has not ended.
  EXPECT_EQ(a->call(request(Op::getattr, f.handle))->error(), 0);
  auto read = b->send(data_request(Op::read, f, range(0, 100)));
  sim.loop.run_for(1s);
  EXPECT_FALSE(read->done());
  sim.store->clear();
  sim.store->release();
  EXPECT_EQ(b->wait(read).error(), 0);
  EXPECT_EQ(b->call(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000))->error(), 0);
}

TEST(Deadline, ALateOpenIsClosed) {
  SimServer sim(test_seed());
  auto c = sim.client();
  sim.store->add({.op = Op::create, .action = FaultRule::Action::hold});
  Request r = request(Op::create, c->welcome.root, "f");
  r.mode = 0644;
  r.access = Access::both;
  EXPECT_EQ(c->call(r)->error(), ETIMEDOUT);
  sim.store->release();
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

TEST(Deadline, ASlowButMovingTransferIsLeftAlone) {
  SimServer sim(test_seed());
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  sim.store->add({.op = Op::write, .action = FaultRule::Action::delay, .delay = 20s});
  const std::string data = pattern(1, 300000);  // 19 chunks, 4 at a time: 100 s
  auto write = c->send(data_request(Op::write, f, range(0, data.size())), data);
  EXPECT_EQ(c->wait(write, 1000s).reply().count, data.size());
}

TEST(Exports, ADeadOneDoesNotStopAnother) {
  SimServer sim(test_seed());
  auto dead = std::make_unique<FaultStore>(std::make_unique<MemoryStore>());
  dead->add({.action = FaultRule::Action::hold});
  ExportOptions o = SimServer::small();
  o.name = "dead";
  ASSERT_TRUE(sim.server->add_export(o, std::move(dead)).has_value());
  RawClient stuck(sim.loop, sim.net, "stuck");
  stuck.hello.export_name = "dead";
  ASSERT_TRUE(stuck.connect());
  for (int i = 0; i < 10; ++i) stuck.send(request(Op::getattr, stuck.welcome.root));
  auto c = sim.client();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(c->call(request(Op::getattr, c->welcome.root))->error(), 0);
  }
  EXPECT_EQ(stuck.unanswered().size(), 10u);
  // And a client that goes on asking is bounded: answered at once when too many are stuck.
  for (int round = 0; round < 10; ++round) {
    while (stuck.unanswered().size() < 16) stuck.send(request(Op::getattr, stuck.welcome.root));
    sim.loop.run_until([&] { return stuck.unanswered().empty(); }, 100s);
  }
  const Time before = sim.loop.now();
  EXPECT_EQ(stuck.call(request(Op::getattr, stuck.welcome.root))->error(), ETIMEDOUT);
  EXPECT_LT(sim.loop.now() - before, Duration(1s));
}

// ---- Stop and crash ----

TEST(Stop, FinishesWhatHasBegunAndNothingElse) {
  SimServer sim(test_seed());
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  sim.store->add({.op = Op::write, .action = FaultRule::Action::delay, .delay = 2s});
  const std::string data = pattern(1, 200000);
  auto begun = c->send(data_request(Op::write, f, range(0, data.size())), data);
  auto waiting = c->send(data_request(Op::write, f, range(0, 100)), pattern(2, 100));
  sim.loop.run_for(1s);
  bool stopped = false;
  sim.server->stop(100s, [&] { stopped = true; });
  auto later = c->send(request(Op::getattr, f.handle));
  EXPECT_TRUE(sim.loop.run_until([&] { return stopped; }, 200s));
  sim.loop.run_for(1s);
  EXPECT_TRUE(c->goodbye);
  EXPECT_EQ(c->wait(begun).reply().count, data.size());
  EXPECT_FALSE(waiting->done());
  EXPECT_FALSE(later->done());
  EXPECT_EQ(sim.memory->open_rights(), 0u);
  RawClient late(sim.loop, sim.net, "late");
  EXPECT_FALSE(late.connect());
}

// Data arrives in pieces: a stop may come while the connection writes into a buffer.
TEST(Stop, WithHalfAPayloadOnItsWay) {
  SimOptions slow;
  slow.delay_min = slow.delay_max = 1ms;
  slow.window = 2_KiB;  // an eighth of a chunk
  const uint64_t seed = test_seed();
  for (int moment = 0; moment < 40; ++moment) {
    SimServer sim(seed + static_cast<uint64_t>(moment), {}, SimServer::small(), slow);
    auto c = sim.client();
    const OpenFile f = create(*c, "f");
    const std::string data = pattern(1, 100000);
    auto write = c->send(data_request(Op::write, f, range(0, data.size())), data);
    sim.loop.run_for(moment * 1ms);
    bool stopped = false;
    sim.server->stop(100s, [&] { stopped = true; });
    EXPECT_TRUE(sim.loop.run_until([&] { return stopped; }, 50s)) << "stopped after " << moment;
    sim.loop.run_for(1s);
    EXPECT_TRUE(c->goodbye) << "stopped after " << moment;
    EXPECT_TRUE(!write->done() || write->error() == 0);
    EXPECT_EQ(sim.memory->open_rights(), 0u);
  }
}

TEST(Stop, DoesNotWaitForeverForABackEnd) {
  SimServer sim(test_seed());
  auto c = sim.client();
  sim.store->add({.op = Op::getattr, .action = FaultRule::Action::hold});
  auto stuck = c->send(request(Op::getattr, c->welcome.root));
  sim.loop.run_for(1s);
  bool stopped = false;
  sim.server->stop(5s, [&] { stopped = true; });
  EXPECT_TRUE(sim.loop.run_until([&] { return stopped; }, 6s));
  sim.loop.run_for(1s);
  EXPECT_FALSE(c->goodbye);  // it would say that nothing unanswered was begun
  EXPECT_TRUE(c->closed);
  EXPECT_FALSE(stuck->done());
}

TEST(Stop, ByControl) {
  SimServer sim(test_seed());
  bool asked = false;
  sim.server->on_stop_request([&] { asked = true; });
  RawClient c(sim.loop, sim.net, "c");
  c.hello.purpose = wire::Hello::Purpose::control;
  ASSERT_TRUE(c.connect());
  c.send_raw(wire::encode(wire::Control{"dance"}));
  ASSERT_TRUE(sim.loop.run_until([&] { return c.control_reply.has_value(); }, 5s));
  EXPECT_EQ(c.control_reply->error().code(), EOPNOTSUPP);
  c.control_reply.reset();
  c.send_raw(wire::encode(wire::Control{"stop"}));
  EXPECT_TRUE(sim.loop.run_until([&] { return asked && c.control_reply; }, 5s));
}

TEST(Crash, AtAnyMoment) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    SimServer sim(seed + round);
    auto c = sim.client();
    const OpenFile f = create(*c, "f");
    sim.store->add({.probability = 0.1, .action = FaultRule::Action::hold});
    std::vector<Extent> list(2000, {Offset(5), Length(100)});
    for (int i = 0; i < 5; ++i) {
      c->send(data_request(Op::write, f, range(0, 200000)), pattern(1, 200000));
      c->send(data_request(Op::read, f, range(0, 200000)));
      c->send_list(data_request(Op::write, f, {}), list, pattern(1, 200000));
      c->send(request(Op::getattr, f.handle));
    }
    sim.loop.run_for(Duration(random() % 20000000));
    sim.net.kill("server");
    sim.crash();
    sim.loop.run_for(1s);
    sim.start();
    ASSERT_TRUE(c->resume());
    EXPECT_FALSE(c->welcome.resumed);
  }
}

TEST(Status, ShowsExportsAndSessions) {
  SimServer sim(test_seed());
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  c->call(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000));
  RawClient odd(sim.loop, sim.net, "odd");
  odd.hello.job = "a \"job\"\n\x01\xff";
  ASSERT_TRUE(odd.connect());
  RawClient control(sim.loop, sim.net, "c");
  control.hello.purpose = wire::Hello::Purpose::control;
  ASSERT_TRUE(control.connect());
  control.send_raw(wire::encode(wire::Control{"status"}));
  ASSERT_TRUE(sim.loop.run_until([&] { return control.control_reply.has_value(); }, 5s));
  const std::string json = control.control_reply->value();
  for (const char* part :
       {"\"name\": \"main\"", "\"write\": 1", "\"bytes_in\": 100000", "\"host\": \"client\"",
        "\"connected\": true", "\"in_use\": 0", "a \\\"job\\\"\\u000a\\u0001?"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
  }
}

}  // namespace
}  // namespace forebay::server
