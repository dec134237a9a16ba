// Handshake, slots, identity, every operation, and clients that break the rules.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

Peer peer_of(uint32_t uid, bool speaks = false) {
  Peer peer;
  auto caller = std::make_shared<Caller>();
  caller->uid = caller->gid = uid;
  peer.caller = caller;
  peer.may_speak_for_others = speaks;
  peer.where = "test";
  return peer;
}

ServerOptions open_to_all() {
  ServerOptions o;
  o.only_this_user = false;
  return o;
}

TEST(Handshake, RefusesWithTheReason) {
  SimServer sim(test_seed());
  struct Case {
    std::string what;
    int error;
    std::function<void(RawClient&)> change;
    std::optional<Peer> peer;
  };
  Peer unknown;
  unknown.where = "nowhere";
  const std::vector<Case> cases = {
      {"version", EPROTO, [](RawClient& c) { c.hello.version_min = c.hello.version_max = 99; }, {}},
      {"export", ENOENT, [](RawClient& c) { c.hello.export_name = "nope"; }, {}},
      {"method", EPROTONOSUPPORT, [](RawClient& c) { c.hello.auth_method = "munge"; }, {}},
      {"unknown peer", EACCES, [](RawClient&) {}, unknown},
      {"other user", EACCES, [](RawClient&) {}, peer_of(::geteuid() + 1)},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    RawClient client(sim.loop, sim.net, "c", c.peer);
    c.change(client);
    EXPECT_FALSE(client.connect());
    ASSERT_TRUE(client.refused.has_value());
    EXPECT_EQ(client.refused->code(), c.error) << client.refused->message();
  }
}

TEST(Handshake, SilentGuestIsClosed) {
  SimServer sim(test_seed());
  auto transport = sim.net.transport("mute");
  std::unique_ptr<Connection> mute;
  transport->connect(*Address::parse("sim:server"), sim.loop, 1s,
                     [&](auto made) { mute = std::move(*made); });
  RawClient handler(sim.loop, sim.net, "unused");
  ASSERT_TRUE(sim.loop.run_until([&] { return mute != nullptr; }, 1s));
  mute->start(handler);
  EXPECT_TRUE(sim.loop.run_until([&] { return handler.closed; }, 60s));
}

TEST(Handshake, TooManySessions) {
  ServerOptions o;
  o.sessions = 2;
  SimServer sim(test_seed(), o);
  auto a = sim.client(), b = sim.client();
  RawClient c(sim.loop, sim.net, "c");
  EXPECT_FALSE(c.connect());
  EXPECT_EQ(c.refused->code(), EUSERS);
  a->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_TRUE(RawClient(sim.loop, sim.net, "d").connect());
}

TEST(Handshake, TooManySessionsOfOneUser) {
  ServerOptions o;
  o.only_this_user = false;
  o.sessions_per_user = 2;
  SimServer sim(test_seed(), o);
  auto a = sim.client(), b = sim.client();
  RawClient c(sim.loop, sim.net, "c");
  EXPECT_FALSE(c.connect());
  EXPECT_EQ(c.refused->code(), EUSERS);
  EXPECT_NE(c.refused->what().find("may have no more"), std::string::npos) << c.refused->what();
  Caller other;
  other.uid = this_process_caller()->uid + 1;
  auto d = sim.client("d", Peer{std::make_shared<const Caller>(other), 0, false, "d"});
  b->hang_up();
  EXPECT_TRUE(b->resume());  // it has its place
  a->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_TRUE(c.connect());
}

// Of a program that has ended only what it has opened is kept, for its children, and that takes
// nobody's place; of those that ended long ago not even that, if there are many.
TEST(Handshake, ThoseWhoHaveEndedTakeNoPlace) {
  for (const bool of_user : {false, true}) {
    SCOPED_TRACE(of_user);
    ServerOptions o;
    if (of_user) {
      o.only_this_user = false;
      o.sessions_per_user = 3;
    } else {
      o.sessions = 3;
    }
    SimServer sim(test_seed(), o);
    const pid_t ended = ::fork();
    ASSERT_GE(ended, 0);
    if (ended == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
    uint32_t eager = 0;
    for (int i = 0; i < 20; ++i) {
      const auto pid = static_cast<uint32_t>(ended);
      RawClient c(sim.loop, sim.net, "c", Peer{this_process_caller(), ended, false, "c"});
      c.hello.pid = pid;
      ASSERT_TRUE(c.connect()) << i;
      if (i == 0) eager = c.welcome.eager_bytes;
      EXPECT_EQ(c.welcome.eager_bytes, eager);
      create(c, "f");
      c.hang_up();
      sim.loop.run_for(50ms);
    }
    EXPECT_EQ(sim.store->calls(Op::close), 17u);  // three may have children
    sim.loop.run_for(60s);
    EXPECT_EQ(sim.store->calls(Op::close), 20u);
    auto a = sim.client(), b = sim.client(), c = sim.client();
    EXPECT_FALSE(RawClient(sim.loop, sim.net, "d").connect());
  }
}

TEST(Handshake, EagerCreditIsShared) {
  ServerOptions o;
  o.eager_total = 300_KiB;
  o.eager_shares = 2;
  SimServer sim(test_seed(), o);
  auto a = sim.client(), b = sim.client(), c = sim.client();
  EXPECT_EQ(a->welcome.eager_bytes, 150_KiB);
  EXPECT_EQ(b->welcome.eager_bytes, 75_KiB);
  EXPECT_EQ(c->welcome.eager_bytes, 75_KiB / 2);
  a->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_GT(sim.client()->welcome.eager_bytes, 75_KiB);
}

TEST(Operations, EveryOneThroughFrames) {
  SimServer sim(test_seed());
  auto c = sim.client();
  const Handle root = c->welcome.root;
  const OpenFile f = create(*c, "f");
  const std::string small = pattern(1, 1000), large = pattern(2, 200000);

  EXPECT_EQ(c->call(data_request(Op::write, f, range(0, 1000)), small)->reply().count, 1000u);
  EXPECT_EQ(c->call(data_request(Op::write, f, range(1000, 200000)), large)->reply().count,
            200000u);
  EXPECT_EQ(read_back(*c, f, 201000), small + large);
  EXPECT_EQ(read_back(*c, f, 500), small.substr(0, 500));
  EXPECT_EQ(read_back(*c, f, 1000000), small + large);  // short at the end of file
  EXPECT_EQ(c->call(data_request(Op::read, f, range(300000, 10)))->reply().count, 0u);
  EXPECT_EQ(c->call(data_request(Op::read, f, range(300000, 100000)))->reply().count, 0u);
  EXPECT_EQ(c->call(data_request(Op::read, f, {}))->reply().count, 0u);
  EXPECT_EQ(c->call(data_request(Op::write, f, {}))->reply().count, 0u);

  EXPECT_EQ(c->call(request(Op::getattr, f.handle))->reply().attr.size, 201000u);
  EXPECT_EQ(c->call(request(Op::lookup, root, "f"))->reply().handle, f.handle);
  EXPECT_EQ(c->call(request(Op::lookup, root, "nope"))->error(), ENOENT);
  Request r = request(Op::setattr, f.handle);
  r.set = {SetAttr::kMode, 0600, 0, 0, {}, {}};
  EXPECT_EQ(c->call(r)->reply().attr.mode & 0777, 0600u);
  r = request(Op::resize, f.handle);
  r.length = Length(100);
  EXPECT_EQ(c->call(r)->reply().attr.size, 100u);
  r = data_request(Op::fallocate, f, {});
  r.length = Length(4096);
  EXPECT_EQ(c->call(r)->error(), 0);
  EXPECT_EQ(c->call(data_request(Op::commit, f, {}))->error(), 0);
  EXPECT_GT(c->call(request(Op::statfs, root))->reply().statfs.block_size, 0u);
  EXPECT_EQ(c->call(request(Op::layout, f.handle))->error(), 0);

  r = request(Op::mkdir, root, "d");
  r.mode = 0755;
  const Handle d = c->call(r)->reply().handle;
  r = request(Op::symlink, root, "s");
  r.data = "f";
  const Handle s = c->call(r)->reply().handle;
  EXPECT_EQ(c->call(request(Op::readlink, s))->reply().data, "f");
  r = request(Op::link, f.handle);
  r.handle2 = d;
  r.name2 = "hard";
  EXPECT_EQ(c->call(r)->error(), 0);
  r = request(Op::rename, root, "s");
  r.handle2 = d;
  r.name2 = "t";
  EXPECT_EQ(c->call(r)->error(), 0);
  r = request(Op::readdir, d);
  r.length = Length(65536);
  EXPECT_EQ(c->call(r)->reply().entries.size(), 2u);
  EXPECT_EQ(c->call(request(Op::remove, d, "t"))->error(), 0);

  r = request(Op::xattr_set, f.handle, "user.a");
  r.data = "value";
  EXPECT_EQ(c->call(r)->error(), 0);
  EXPECT_EQ(c->call(request(Op::xattr_get, f.handle, "user.a"))->reply().data, "value");
  EXPECT_EQ(c->call(request(Op::xattr_list, f.handle))->reply().data.size(), 7u);
  EXPECT_EQ(c->call(request(Op::xattr_remove, f.handle, "user.a"))->error(), 0);

  r = request(Op::open, f.handle);
  r.access = Access::read;
  const Right right = c->call(r)->reply().right;
  EXPECT_EQ(sim.memory->open_rights(), 2u);
  r = request(Op::close, f.handle);
  r.right = right;
  EXPECT_EQ(c->call(r)->error(), 0);
  EXPECT_EQ(sim.memory->open_rights(), 1u);
}

TEST(Operations, BadArgumentsFailOnlyTheirRequest) {
  SimServer sim(test_seed());
  auto c = sim.client();
  EXPECT_EQ(c->call(request(Op::lookup, c->welcome.root))->error(), EINVAL);
  EXPECT_EQ(c->call(request(Op::mkdir, c->welcome.root, "a/b"))->error(), EINVAL);
  EXPECT_EQ(c->call(request(Op::mkdir, c->welcome.root, std::string(300, 'x')))->error(),
            ENAMETOOLONG);
  EXPECT_EQ(c->call(request(Op::getattr, Handle{"forged"}))->error(), EBADF);
  EXPECT_EQ(c->call(request(Op::getattr, c->welcome.root))->error(), 0);
  EXPECT_FALSE(c->closed);
}

TEST(Identity, OnlySomeSpeakForOthers) {
  SimServer sim(test_seed(), open_to_all());
  auto user = sim.client("user", peer_of(1000));
  auto root = sim.client("root", peer_of(0, true));
  Request r = request(Op::mkdir, user->welcome.root, "d");
  r.mode = 0755;
  r.caller = peer_of(1001).caller;
  EXPECT_EQ(user->call(r)->error(), EPERM);
  r.mode = 0777;
  r.caller = peer_of(0).caller;
  const auto made = root->call(r);
  ASSERT_EQ(made->error(), 0);
  r = request(Op::setattr, made->reply().handle);
  r.set = {SetAttr::kMode, 0777, 0, 0, {}, {}};
  ASSERT_EQ(root->call(r)->error(), 0);

  r = request(Op::create, made->reply().handle, "by-1001");
  r.mode = 0600;
  r.access = Access::both;
  r.caller = peer_of(1001).caller;
  const auto other = root->call(r);
  ASSERT_EQ(other->error(), 0);
  EXPECT_EQ(other->reply().attr.uid, 1001u);
  r.name = "by-1000";
  r.caller = peer_of(1000).caller;  // as itself
  EXPECT_EQ(user->call(r)->reply().attr.uid, 1000u);
  // Rights of others are closed as those others.
  EXPECT_EQ(sim.memory->open_rights(), 2u);
  root->send_raw(wire::encode_goodbye("bye"));
  user->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

// ---- Once ----

TEST(Once, ARepeatedRequestGetsTheRememberedReply) {
  SimServer sim(test_seed());
  auto c = sim.client();
  Request r = request(Op::mkdir, c->welcome.root, "d");
  r.mode = 0755;
  const auto made = c->call(r);
  ASSERT_EQ(made->error(), 0);
  const Handle handle = made->reply().handle;
  made->result.reset();
  c->transmit(*made);
  EXPECT_EQ(c->wait(made).error(), 0);  // not EEXIST
  EXPECT_EQ(made->reply().handle, handle);
  EXPECT_EQ(sim.store->calls(Op::mkdir), 1u);

  const OpenFile f = create(*c, "f");
  const auto eager = c->call(data_request(Op::write, f, range(0, 100)), pattern(3, 100));
  eager->result.reset();
  c->transmit(*eager);
  EXPECT_EQ(c->wait(eager).reply().count, 100u);
  EXPECT_EQ(sim.store->calls(Op::write), 1u);

  const auto read = c->call(data_request(Op::read, f, range(0, 100)));
  read->result.reset();
  c->transmit(*read);  // done again
  EXPECT_EQ(c->wait(read).in, pattern(3, 100));
  EXPECT_EQ(sim.store->calls(Op::read), 2u);
}

TEST(Once, ARequestUnderWayIsNotBegunAgain) {
  SimServer sim(test_seed());
  auto c = sim.client();
  sim.store->add({.op = Op::mkdir, .action = FaultRule::Action::delay, .delay = 5s});
  Request r = request(Op::mkdir, c->welcome.root, "d");
  r.mode = 0755;
  const auto made = c->send(r);
  sim.loop.run_for(1s);
  ASSERT_TRUE(c->resume());
  EXPECT_TRUE(c->welcome.resumed);
  EXPECT_EQ(c->wait(made).error(), 0);
  sim.loop.run_for(1s);
  EXPECT_EQ(made->replies, 1u);
  EXPECT_EQ(sim.store->calls(Op::mkdir), 1u);
}

// Connections are cut all the time; counters in the store show that everything happened once.
TEST(Once, UnderRandomCuts) {
  const uint64_t seed = test_seed();
  SimServer sim(seed);
  std::mt19937_64 random(seed);
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  std::string expected;
  const uint64_t session = c->welcome.session;
  sim.net.set_cut_chance(0.05);
  for (int i = 0; i < 200; ++i) {
    const std::string data = pattern(random(), random() % 10 == 0 ? 60000 : 500);
    // Exclusive: a second try would be EEXIST.
    Request r = request(Op::create, c->welcome.root, numbered("x", i));
    r.flags = kFlagExclusive;
    r.mode = 0644;
    auto a = c->send(r);
    auto b = c->send(data_request(Op::write, f, range(expected.size(), data.size())), data);
    expected += data;
    for (int tries = 0; !(a->done() && b->done()); ++tries) {
      ASSERT_LT(tries, 100);
      sim.loop.run_until([&] { return c->closed || (a->done() && b->done()); }, 100s);
      while (c->closed && !c->resume()) {
      }
      ASSERT_EQ(c->welcome.session, session);
    }
    ASSERT_EQ(a->error(), 0) << i;
    ASSERT_EQ(b->error(), 0) << i;
  }
  sim.net.set_cut_chance(0);
  while (c->closed && !c->resume()) {
  }
  EXPECT_EQ(read_back(*c, f, expected.size()), expected);
}

// ---- Resume ----

TEST(Resume, NeedsTheKey) {
  SimServer sim(test_seed());
  auto c = sim.client();
  const uint64_t old = c->welcome.session;
  c->welcome.session_key[3] ^= 1;
  ASSERT_TRUE(c->resume());
  EXPECT_FALSE(c->welcome.resumed);
  EXPECT_NE(c->welcome.session, old);
}

TEST(Resume, FencesTheOldConnection) {
  SimServer sim(test_seed());
  auto c = sim.client();
  RawClient second(sim.loop, sim.net, "client");
  second.hello.session = c->welcome.session;
  second.hello.session_key = c->welcome.session_key;
  ASSERT_TRUE(second.connect());
  EXPECT_TRUE(second.welcome.resumed);
  EXPECT_TRUE(sim.loop.run_until([&] { return c->closed; }, 5s));
  EXPECT_EQ(second.call(request(Op::getattr, second.welcome.root))->error(), 0);
}

TEST(Resume, AfterGraceIsANewSession) {
  SimServer sim(test_seed());
  auto c = sim.client();
  c->hang_up();
  sim.loop.run_for(40s);
  ASSERT_TRUE(c->resume());
  EXPECT_FALSE(c->welcome.resumed);
}

// ---- Rules ----

void expect_refused(SimServer& sim, RawClient& c, const std::string& what) {
  EXPECT_TRUE(sim.loop.run_until([&] { return c.closed; }, 10s)) << what;
  ASSERT_TRUE(c.refused.has_value()) << what;
  EXPECT_EQ(c.refused->code(), EPROTO) << what;
}

TEST(Rules, BreakingThemClosesWithTheReason) {
  SimServer sim(test_seed());
  wire::RequestMessage getattr;
  auto ask = [&](RawClient& c, uint16_t slot, uint64_t sequence, uint32_t payload = 0) {
    getattr.request = request(Op::getattr, c.welcome.root);
    getattr.id = {slot, sequence};
    c.send_raw(wire::encode(getattr, payload), std::string(payload, 'x'));
  };
  const std::vector<std::pair<std::string, std::function<void(RawClient&)>>> cases = {
      {"no such slot", [&](RawClient& c) { ask(c, 64, 1); }},
      {"sequence 0", [&](RawClient& c) { ask(c, 0, 0); }},
      {"sequence skipped", [&](RawClient& c) { ask(c, 0, 2); }},
      {"payload of a getattr", [&](RawClient& c) { ask(c, 0, 1, 5000000); }},
      {"unasked data",
       [&](RawClient& c) {
         c.send_raw(wire::encode(wire::Data{{0, 1}, wire::Part::stream, 0}, 300000),
                    std::string(300000, 'x'));
       }},
      {"a place in memory that is not lent",
       [&](RawClient& c) {
         wire::RequestMessage read(request(Op::read, c.welcome.root));
         read.request.file = Extents(Extent{Offset(0), Length(10)});
         read.id = {0, 1};
         read.place = 0;
         c.send_raw(wire::encode(read));
       }},
      {"hello again", [&](RawClient& c) { c.send_raw(wire::encode(c.hello)); }},
      {"garbage", [&](RawClient& c) {
         std::string head = wire::encode(wire::Cancel{{0, 1}});
         std::fill(head.begin() + wire::kHeaderSize, head.end(), '\xff');
         c.send_raw(head);
       }}};
  for (const auto& [what, misbehave] : cases) {
    auto c = sim.client();
    misbehave(*c);
    expect_refused(sim, *c, what);
  }
}

TEST(Rules, ASlotIsUsedByOneRequestAtATime) {
  SimServer sim(test_seed());
  auto c = sim.client();
  sim.store->add({.op = Op::getattr, .action = FaultRule::Action::hold});
  wire::RequestMessage m;
  m.request = request(Op::getattr, c->welcome.root);
  m.id = {0, 1};
  c->send_raw(wire::encode(m));
  m.id = {0, 2};
  c->send_raw(wire::encode(m));
  expect_refused(sim, *c, "two at once");
}

// A client that asks and does not read is held to one reply for each slot.
TEST(Rules, ASlotIsBusyUntilItsReplyIsOut) {
  SimOptions narrow;
  narrow.delay_min = narrow.delay_max = 1ms;
  narrow.window = 4_KiB;
  SimServer sim(test_seed(), {}, SimServer::small(), narrow);
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  ASSERT_EQ(c->call(data_request(Op::write, f, range(0, 30000)), pattern(1, 30000))->error(), 0);
  auto read = c->send(data_request(Op::read, f, range(0, 30000)));
  sim.loop.run_for(3ms);
  ASSERT_FALSE(read->done());
  wire::RequestMessage next;
  next.request = request(Op::getattr, f.handle);
  next.id = {read->message.id.slot, read->message.id.sequence + 1};
  c->send_raw(wire::encode(next));
  expect_refused(sim, *c, "the reply before is on its way");
}

TEST(Rules, EagerDataStaysWithinItsCredit) {
  ServerOptions o;
  o.eager_session = 40_KiB;
  SimServer sim(test_seed(), o);
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  sim.store->add({.op = Op::write, .action = FaultRule::Action::hold});
  const std::string data = pattern(1, 30_KiB);
  c->send(data_request(Op::write, f, range(0, data.size())), data);
  c->send(data_request(Op::write, f, range(data.size(), data.size())), data);
  expect_refused(sim, *c, "over credit");
}

TEST(Rules, DataMustAnswerItsPull) {
  SimServer sim(test_seed());
  for (const int wrong : {0, 1, 2}) {
    auto c = sim.client();
    const OpenFile f = create(*c, numbered("f", wrong));
    c->auto_pull = false;
    c->send(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000));
    ASSERT_TRUE(sim.loop.run_until([&] { return !c->pulls.empty(); }, 5s));
    wire::Pull p = c->pulls.front();
    if (wrong == 0) p.position += 1;
    if (wrong == 1) p.length -= 1;
    if (wrong == 2) p.id.sequence += 1;
    c->send_raw(wire::encode(wire::Data{p.id, p.part, p.position}, p.length),
                std::string(p.length, 'x'));
    expect_refused(sim, *c, "wrong data");
  }
}

}  // namespace
}  // namespace forebay::server
