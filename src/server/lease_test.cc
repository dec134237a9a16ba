// Leases of a server's clients, on the simulated loop; and the table's life after a restart.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "server/lease_table.h"
#include "server/raw_client.h"

namespace forebay::server {
namespace {

Request lease_request(const OpenFile& file, uint64_t renew = 0) {
  Request r = request(Op::lease, file.handle);
  r.right = file.right;
  r.flags = kFlagShared | (renew ? uint32_t(kFlagReclaim) : 0u);
  r.cookie = renew;
  return r;
}

// A client that the kernel vouches for: its connection's end is that of its copies.
Peer neighbour() {
  Peer peer;
  peer.caller = this_process_caller();
  peer.pid = ::getpid();
  peer.where = "sim neighbour";
  return peer;
}

class Lease : public testing::Test {
 protected:
  void SetUp() override {
    a_ = sim_.client("a");
    b_ = sim_.client("b", neighbour());
    f_ = create(*a_, "f");
    EXPECT_EQ(a_->call(data_request(Op::write, f_, range(0, 4)), "0123")->error(), 0);
  }
  uint64_t lease(RawClient& client) {
    const auto got = client.call(lease_request(f_));
    EXPECT_EQ(got->error(), 0);
    return got->done() && got->error() == 0 ? got->reply().value : 0;
  }
  // Also if there is nothing to do meanwhile.
  void pass(Duration d) {
    sim_.loop.after(d, [] {});
    sim_.loop.run_for(d);
  }
  // All ways by which a client changes a file.
  std::vector<std::pair<const char*, std::function<RawClient::CallRef()>>> changes(RawClient& c) {
    const auto small = [this, &c] {
      return c.send(data_request(Op::write, f_, range(0, 4)), "abcd");
    };
    return {
        {"small write", small},
        {"small write, the short way", small},
        {"bulk write",
         [this, &c] {
           return c.send(data_request(Op::write, f_, range(0, 100000)), pattern(1, 100000));
         }},
        {"listed write",
         [this, &c] {
           std::vector<Extent> list;
           for (uint64_t i = 0; i < 1500; ++i) list.push_back(ext(i * 3, 1));
           return c.send_list(data_request(Op::write, f_, {}), list, pattern(2, 1500));
         }},
        {"append",
         [this, &c] {
           Request r = data_request(Op::write, f_, range(0, 3));
           r.flags = kFlagAppend;
           return c.send(std::move(r), "xyz");
         }},
        {"resize",
         [this, &c] {
           Request r = request(Op::resize, f_.handle);
           r.length = Length(2);
           return c.send(std::move(r));
         }},
        {"fallocate",
         [this, &c] {
           Request r = request(Op::fallocate, f_.handle);
           r.right = f_.right;
           r.length = Length(2);
           r.flags = kFlagZeroRange;
           return c.send(std::move(r));
         }},
        {"setattr",
         [this, &c] {
           Request r = request(Op::setattr, f_.handle);
           r.set.what = SetAttr::kMtimeNow;
           return c.send(std::move(r));
         }},
        {"create that truncates",
         [&c] {
           Request r = request(Op::create, c.welcome.root, "f");
           r.mode = 0644;
           r.flags = kFlagTruncate;
           return c.send(std::move(r));
         }},
    };
  }

  SimServer sim_{test_seed()};
  std::unique_ptr<RawClient> a_, b_;
  OpenFile f_;
};

TEST_F(Lease, IsRecalledByEveryKindOfChangeBeforeThatCompletes) {
  b_->auto_release = false;
  for (const auto& [name, change] : changes(*a_)) {
    const uint64_t held = lease(*b_);
    b_->recalls.clear();
    const auto changed = change();
    sim_.loop.run_for(100ms);
    EXPECT_FALSE(changed->done()) << name;
    ASSERT_EQ(b_->recalls, std::vector<uint64_t>{held}) << name;
    b_->call(data_request(Op::read, f_, range(0, 1)));  // is not held up
    b_->send_raw(wire::encode(wire::Released{held}));
    EXPECT_EQ(a_->wait(changed, 100ms).error(), 0) << name;
  }
}

TEST_F(Lease, IsNotRecalledByItsHolderNorByWhatChangesNothing) {
  const uint64_t held = lease(*b_);
  EXPECT_EQ(b_->call(data_request(Op::write, f_, range(0, 1)), "x")->error(), 0);
  EXPECT_EQ(b_->call(data_request(Op::write, f_, range(1, 1)), "y")->error(), 0);
  EXPECT_EQ(read_back(*a_, f_, 4), "xy23");
  const OpenFile other = create(*a_, "g");
  EXPECT_EQ(a_->call(data_request(Op::write, other, range(0, 1)), "x")->error(), 0);
  EXPECT_TRUE(b_->recalls.empty());
  EXPECT_EQ(b_->call(lease_request(f_, held))->error(), 0);
  EXPECT_NE(lease(*b_), held) << "in its place";
  EXPECT_EQ(b_->call(lease_request(f_, held))->error(), ENOLCK);
}

// Its client came back meanwhile, and asked again.
TEST_F(Lease, IsRecalledBeforeACreateThatIsSentAgainIsAnswered) {
  b_->auto_release = false;
  const uint64_t held = lease(*b_);
  Request cut = request(Op::create, a_->welcome.root, "f");
  cut.mode = 0644;
  cut.flags = kFlagTruncate;
  const auto create = a_->send(std::move(cut));
  sim_.loop.run_for(100ms);
  EXPECT_FALSE(create->done());
  ASSERT_TRUE(a_->resume());
  EXPECT_TRUE(a_->welcome.resumed);
  sim_.loop.run_for(100ms);
  EXPECT_FALSE(create->done());
  EXPECT_EQ(b_->recalls, std::vector<uint64_t>{held});
  b_->send_raw(wire::encode(wire::Released{held}));
  EXPECT_EQ(a_->wait(create, 100ms).error(), 0);
  EXPECT_EQ(create->reply().attr.size, 0u);
}

// A client that has asked twice cannot tell which answer is of the later one.
TEST_F(Lease, IsNotToldOnceAnotherHasTakenItsPlace) {
  sim_.store->add({.op = Op::getattr, .nth = 0, .action = FaultRule::Action::hold});
  const auto first = b_->send(lease_request(f_));
  sim_.loop.run_for(10ms);
  ASSERT_EQ(sim_.store->held(), 1u);
  const uint64_t second = lease(*b_);
  sim_.store->release();
  EXPECT_EQ(b_->wait(first, 100ms).error(), EAGAIN);
  EXPECT_EQ(b_->call(lease_request(f_, second))->error(), 0);
  EXPECT_EQ(a_->call(data_request(Op::write, f_, range(0, 4)), "abcd")->error(), 0);
  EXPECT_EQ(b_->recalls, std::vector<uint64_t>{second});
}

TEST_F(Lease, OfManyAreAllRecalled) {
  std::vector<std::unique_ptr<RawClient>> many;
  for (int i = 0; i < 20; ++i) {
    many.push_back(sim_.client(numbered("c", i)));
    lease(*many.back());
  }
  EXPECT_EQ(a_->call(data_request(Op::write, f_, range(0, 1)), "x")->error(), 0);
  for (const auto& one : many) EXPECT_EQ(one->recalls.size(), 1u);
}

TEST_F(Lease, OfOneWhoNeverAnswersHoldsAChangeUpForItsTimeOnly) {
  b_->auto_release = false;
  lease(*b_);
  const Time before = sim_.loop.now();
  EXPECT_EQ(a_->call(data_request(Op::write, f_, range(0, 1)), "x")->error(), 0);
  EXPECT_GE(sim_.loop.now() - before, 4s);
  EXPECT_LE(sim_.loop.now() - before, 6s);
  sim_.loop.run_for(1s);
  EXPECT_TRUE(b_->refused && b_->refused->code() == ETIMEDOUT) << "it is cut off";
  ASSERT_TRUE(b_->resume());
  EXPECT_EQ(read_back(*b_, f_, 1), "x");
  lease(*b_);
}

TEST_F(Lease, IsKeptByRenewalAndRunsOutWithout) {
  b_->auto_release = false;
  const uint64_t held = lease(*b_);
  for (int i = 0; i < 5; ++i) {
    pass(4s);
    EXPECT_EQ(b_->call(lease_request(f_, held))->reply().value, held);
  }
  const auto change = a_->send(data_request(Op::write, f_, range(0, 1)), "x");
  pass(1s);
  EXPECT_FALSE(change->done());
  EXPECT_EQ(b_->call(lease_request(f_, held))->error(), ENOLCK) << "it was asked for it";
  EXPECT_EQ(a_->wait(change).error(), 0);
  pass(1s);
  ASSERT_TRUE(b_->resume());
  lease(*b_);
  pass(6s);
  const Time before = sim_.loop.now();
  EXPECT_EQ(a_->call(data_request(Op::write, f_, range(0, 1)), "y")->error(), 0);
  EXPECT_LE(sim_.loop.now() - before, 1s);
}

TEST_F(Lease, OfANeighbourThatDiedKeepsNobodyWaiting) {
  b_->auto_release = false;
  lease(*b_);
  const auto change = a_->send(data_request(Op::write, f_, range(0, 1)), "x");
  sim_.loop.run_for(100ms);
  EXPECT_FALSE(change->done());
  b_->hang_up();
  EXPECT_EQ(a_->wait(change, 100ms).error(), 0);
  EXPECT_TRUE(change->done());
}

TEST_F(Lease, OfOneWhoIsOutOfReachRunsOut) {
  auto far = sim_.client("far");
  lease(*far);
  far->hang_up();
  sim_.loop.run_for(1s);
  const auto change = a_->send(data_request(Op::write, f_, range(0, 1)), "x");
  sim_.loop.run_for(3s);
  EXPECT_FALSE(change->done());
  sim_.loop.run_for(2s);
  EXPECT_TRUE(change->done());
}

TEST_F(Lease, IsRecalledForAChangeWhoseClientHasGone) {
  b_->auto_release = true;
  a_->auto_pull = false;
  lease(*b_);
  const auto change = a_->send(data_request(Op::write, f_, range(0, 100000)), pattern(1, 100000));
  sim_.loop.run_for(100ms);
  ASSERT_FALSE(a_->pulls.empty());
  a_->answer(a_->pulls.front());  // one chunk lands
  sim_.loop.run_for(100ms);
  EXPECT_TRUE(b_->recalls.empty());
  a_->send_raw(wire::encode_goodbye("done"));
  sim_.loop.run_for(1s);
  EXPECT_EQ(b_->recalls.size(), 1u);
}

TEST_F(Lease, IsRefusedWithoutARight) {
  Request forged = lease_request(f_);
  forged.right.bytes = "forged";
  EXPECT_EQ(b_->call(forged)->error(), EBADF);
  EXPECT_EQ(b_->call(lease_request(f_, 77))->error(), ENOLCK);
  b_->send_raw(wire::encode(wire::Released{77}));  // crosses the end of the lease
  EXPECT_EQ(read_back(*b_, f_, 4), "0123");
}

TEST_F(Lease, ThatWasGrantedOnAnEarlierConnectionIsNotToldOnTheNext) {
  sim_.store->add({.op = Op::getattr, .nth = 0, .action = FaultRule::Action::hold});
  const auto asked = b_->send(lease_request(f_));
  sim_.loop.run_for(100ms);
  ASSERT_EQ(sim_.store->held(), 1u);
  b_->hang_up();
  sim_.loop.run_for(100ms);
  ASSERT_TRUE(b_->resume());
  sim_.loop.run_for(100ms);  // it has asked again
  sim_.store->release();
  EXPECT_EQ(b_->wait(asked).error(), ENOLCK);
  const Time before = sim_.loop.now();
  EXPECT_EQ(a_->call(data_request(Op::write, f_, range(0, 1)), "x")->error(), 0);
  EXPECT_LE(sim_.loop.now() - before, 1s);
}

TEST_F(Lease, OfAClientThatNeverCameBackIsForgotten) {
  auto far = sim_.client("far");
  lease(*far);
  far->hang_up();
  pass(1s);
  EXPECT_NE(sim_.server->status().find("\"leases\": 1"), std::string::npos);
  pass(5s);
  EXPECT_NE(sim_.server->status().find("\"leases\": 0"), std::string::npos);
}

class WriteLease : public Lease {
 protected:
  uint64_t to_write(RawClient& client) {
    Request r = lease_request(f_);
    r.flags = 0;
    const auto got = client.call(std::move(r));
    EXPECT_EQ(got->error(), 0);
    return got->done() && got->error() == 0 ? got->reply().value : 0;
  }
  RawClient::CallRef write_back(RawClient& client, uint64_t lease, std::string data,
                                uint64_t at = 0) {
    Request r = data_request(Op::write, f_, range(at, data.size()));
    r.cookie = lease;
    return client.send(std::move(r), std::move(data));
  }
  Request named(Op op, const char* name) {
    Request r = request(op, a_->welcome.root, name);
    if (op == Op::create) r.mode = 0644;
    return r;
  }
  // All ways by which a client looks at a file; what they show as its size.
  std::vector<std::pair<const char*, Request>> looks() {
    Request list = request(Op::readdir, a_->welcome.root);
    list.flags = kFlagPlus;
    list.length = Length(65536);
    Request open = request(Op::open, f_.handle);
    open.access = Access::read;
    return {{"read", data_request(Op::read, f_, range(0, 100))},
            {"getattr", request(Op::getattr, f_.handle)},
            {"lookup", named(Op::lookup, "f")},
            {"create", named(Op::create, "f")},
            {"readdir", list},
            {"open", open},
            {"lease", lease_request(f_)}};
  }
  static uint64_t size_seen(const Request& look, const Reply& reply) {
    if (look.op == Op::read) return reply.count;
    if (look.op == Op::open) return 0;
    if (look.op != Op::readdir) return reply.attr.size;
    for (const Entry& entry : reply.entries)
      if (entry.name == "f") return entry.attr.size;
    return 0;
  }
};

TEST_F(WriteLease, IsRecalledBeforeAnybodyElseLooks) {
  b_->auto_release = false;
  uint64_t size = 4;
  for (const auto& [name, look] : looks()) {
    const uint64_t held = to_write(*b_);
    b_->recalls.clear();
    const auto seen = a_->send(look);
    sim_.loop.run_for(100ms);
    EXPECT_FALSE(seen->done()) << name;
    ASSERT_EQ(b_->recalls, std::vector<uint64_t>{held}) << name;
    EXPECT_EQ(b_->wait(write_back(*b_, held, "more", size)).error(), 0) << name;
    size += 4;
    b_->send_raw(wire::encode(wire::Released{held}));
    ASSERT_EQ(a_->wait(seen, 100ms).error(), 0) << name;
    if (look.op != Op::open) {
      EXPECT_EQ(size_seen(look, seen->reply()), size) << name;
    }
    if (look.op == Op::lease) a_->send_raw(wire::encode(wire::Released{seen->reply().value}));
  }
}

TEST_F(WriteLease, IsRecalledBeforeAnyChange) {
  b_->auto_release = false;
  for (const auto& [name, change] : changes(*a_)) {
    const uint64_t held = to_write(*b_);
    b_->recalls.clear();
    const auto changed = change();
    sim_.loop.run_for(100ms);
    EXPECT_FALSE(changed->done()) << name;
    ASSERT_EQ(b_->recalls, std::vector<uint64_t>{held}) << name;
    EXPECT_EQ(b_->wait(write_back(*b_, held, "########")).error(), 0) << name;
    b_->send_raw(wire::encode(wire::Released{held}));
    EXPECT_EQ(a_->wait(changed, 100ms).error(), 0) << name;
    // What the holder had was before it.
    const std::string now = read_back(*a_, f_, 8);
    if (std::string_view(name).starts_with("small")) {
      EXPECT_EQ(now.substr(0, 8), "abcd####") << name;
    }
    if (name == std::string_view("resize")) {
      EXPECT_EQ(now, "##");
    }
    if (name == std::string_view("create that truncates")) {
      EXPECT_EQ(now, "");
    }
  }
}

TEST_F(WriteLease, IsAloneAndItsHoldersOwn) {
  const uint64_t reading = lease(*a_);
  Request r = lease_request(f_);
  r.flags = 0;
  EXPECT_EQ(b_->call(r)->error(), EAGAIN);
  EXPECT_TRUE(a_->recalls.empty());
  a_->send_raw(wire::encode(wire::Released{reading}));
  sim_.loop.run_for(100ms);
  const uint64_t held = to_write(*b_);
  for (const auto& [name, look] : looks()) {
    if (look.op != Op::lease) {
      EXPECT_EQ(b_->call(look)->error(), 0) << name;
    }
  }
  EXPECT_TRUE(b_->recalls.empty());
  EXPECT_EQ(b_->call(lease_request(f_, held))->error(), 0) << "renewed";
  EXPECT_EQ(b_->wait(write_back(*b_, held, "x")).error(), 0);
  EXPECT_EQ(b_->wait(write_back(*b_, held + 1, "y")).error(), ESTALE);
  EXPECT_EQ(read_back(*a_, f_, 1), "x") << "recalled, and given back";
  EXPECT_EQ(b_->wait(write_back(*b_, held, "y")).error(), ESTALE);
  EXPECT_EQ(read_back(*a_, f_, 1), "x");
}

TEST_F(WriteLease, OfOneWhoNeverAnswersEndsAndWhatComesLaterIsRefused) {
  b_->auto_release = false;
  const uint64_t held = to_write(*b_);
  const Time before = sim_.loop.now();
  EXPECT_EQ(a_->call(data_request(Op::write, f_, range(0, 4)), "abcd")->error(), 0);
  EXPECT_GE(sim_.loop.now() - before, 4s);
  EXPECT_LE(sim_.loop.now() - before, 6s);
  pass(1s);
  EXPECT_TRUE(b_->refused && b_->refused->code() == ETIMEDOUT) << "it is cut off";
  ASSERT_TRUE(b_->resume());
  for (const size_t size : {size_t(2), size_t(100000)}) {
    EXPECT_EQ(b_->wait(write_back(*b_, held, std::string(size, 'z'))).error(), ESTALE);
  }
  EXPECT_EQ(read_back(*a_, f_, 100), "abcd");
}

TEST_F(WriteLease, IsWrittenBackAfterALostConnectionIfThereIsTime) {
  auto far = sim_.client("far");
  for (RawClient* holder : {b_.get(), far.get()}) {
    const uint64_t held = to_write(*holder);
    holder->hang_up();
    sim_.loop.run_for(1s);
    const auto seen = a_->send(data_request(Op::read, f_, range(0, 4)));
    sim_.loop.run_for(1s);
    EXPECT_FALSE(seen->done());
    ASSERT_TRUE(holder->resume());
    EXPECT_EQ(holder->wait(write_back(*holder, held, holder == b_.get() ? "near" : "far ")).error(),
              0);
    holder->send_raw(wire::encode(wire::Released{held}));
    EXPECT_EQ(a_->wait(seen, 100ms).error(), 0);
    EXPECT_EQ(seen->in, holder == b_.get() ? "near" : "far ");
  }
}

TEST_F(WriteLease, WhoeverWaitsForOneGoesOnInOrder) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  b_->auto_release = false;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const uint64_t held = to_write(*b_);
    std::string expected = "########";
    std::vector<std::pair<RawClient::CallRef, std::string>> reads;
    std::vector<RawClient::CallRef> writes;
    const auto some = [&] {
      for (uint64_t n = random() % 5; n > 0; --n) {
        const uint64_t at = random() % 6;
        if (random() % 3 == 0) {
          reads.emplace_back(a_->send(data_request(Op::read, f_, range(0, 8))), expected);
        } else {
          const std::string text(2, static_cast<char>('a' + random() % 26));
          writes.push_back(a_->send(data_request(Op::write, f_, range(at, 2)), text));
          expected.replace(at, 2, text);
        }
      }
    };
    some();
    sim_.loop.run_for(std::chrono::milliseconds(random() % 20));
    write_back(*b_, held, "########");
    b_->send_raw(wire::encode(wire::Released{held}));
    for (int i = 0; i < 5; ++i) {
      some();
      sim_.loop.run_for(std::chrono::microseconds(random() % 300));
    }
    for (const auto& write : writes) EXPECT_EQ(a_->wait(write).error(), 0);
    for (const auto& [read, text] : reads) {
      EXPECT_EQ(a_->wait(read).error(), 0);
      EXPECT_EQ(read->in, text);
    }
    EXPECT_EQ(read_back(*a_, f_, 8), expected);
    b_->send_raw(wire::encode(wire::Released{held}));
  }
}

// Flights own their session, that the export, and that the table in which they wait.
TEST_F(WriteLease, NobodyWhoWaitsOutlivesTheServer) {
  b_->auto_release = false;
  to_write(*b_);
  const auto looks = a_->send(data_request(Op::read, f_, range(0, 8)));
  sim_.loop.run_for(10ms);
  EXPECT_FALSE(looks->done());
  sim_.crash();  // the sanitizer says what is left
}

TEST_F(Lease, NobodyWhoWaitsOutlivesTheServer) {
  b_->auto_release = false;
  lease(*b_);
  const auto flight = a_->send(data_request(Op::write, f_, range(0, 100000)), pattern(1, 100000));
  const auto small = a_->send(data_request(Op::write, f_, range(100000, 4)), "abcd");
  sim_.loop.run_for(10ms);
  EXPECT_FALSE(flight->done());
  EXPECT_FALSE(small->done());
  sim_.crash();
}

TEST_F(WriteLease, IsRefusedWithoutTheRightToWrite) {
  Request open = request(Op::open, f_.handle);
  open.access = Access::read;
  const OpenFile reading{f_.handle, b_->call(std::move(open))->reply().right};
  Request r = lease_request(reading);
  r.flags = 0;
  EXPECT_EQ(b_->call(std::move(r))->error(), EBADF);
  EXPECT_EQ(b_->call(lease_request(reading))->error(), 0);
}

TEST(LeaseTable, IsNotKeptByThoseWhoWaitWhenTheServerEnds) {
  const TempDir dir;
  const std::string marker = dir.path() + "/leases";
  std::ofstream(marker) << 5000;
  std::weak_ptr<LeaseTable> left;
  {
    SimLoop loop(test_seed());
    const auto table = std::make_shared<LeaseTable>(marker, 5s, 1);
    left = table;
    table->begin(loop.now());
    const Handle file{"f"};
    EXPECT_FALSE(table->changed({"f", file}, 1, loop, [table] { FAIL(); }));
    table->close();
    EXPECT_EQ(table->waiting(), 0u);
    loop.run_for(10s);
  }
  EXPECT_TRUE(left.expired());
}

TEST(LeaseTable, AfterARestartNoChangeCompletesBeforeOldLeasesAreOver) {
  const TempDir dir;
  ExportOptions options = SimServer::small();
  options.lease_marker = dir.path() + "/leases";
  SimServer sim(test_seed(), SimServer::generous(), options);
  auto a = sim.client("a");
  OpenFile f = create(*a, "f");
  EXPECT_NE(::access(options.lease_marker.c_str(), F_OK), 0);
  EXPECT_EQ(a->call(lease_request(f))->error(), 0);
  EXPECT_EQ(::access(options.lease_marker.c_str(), F_OK), 0);
  a.reset();
  sim.crash();
  options.lease_time = 1s;  // the old ones had more
  sim.start(options);
  auto b = sim.client("b");
  f = create(*b, "f");
  const Time before = sim.loop.now();
  EXPECT_EQ(b->call(data_request(Op::write, f, range(0, 1)), "x")->error(), 0);
  EXPECT_GE(sim.loop.now() - before, 4s);
  EXPECT_EQ(b->call(data_request(Op::write, f, range(0, 1)), "y")->error(), 0);
  EXPECT_LE(sim.loop.now() - before, 6s);
  b.reset();
  sim.crash();
  EXPECT_NE(::access(options.lease_marker.c_str(), F_OK), 0) << "nobody held any";
}

}  // namespace
}  // namespace forebay::server
