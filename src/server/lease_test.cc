// Read leases of a server's clients, on the simulated loop; and the table's life after a restart.
#include <gtest/gtest.h>
#include <unistd.h>

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

// A client that the kernel vouches for: its end is its end.
Peer neighbour() {
  Peer peer;
  peer.caller = this_process_caller();
  peer.pid = 4711;
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

TEST_F(Lease, IsRefusedForWritingAndWithoutARightToRead) {
  Request exclusive = lease_request(f_);
  exclusive.flags = 0;
  EXPECT_EQ(b_->call(exclusive)->error(), EOPNOTSUPP);
  Request forged = lease_request(f_);
  forged.right.bytes = "forged";
  EXPECT_EQ(b_->call(forged)->error(), EBADF);
  EXPECT_EQ(b_->call(lease_request(f_, 77))->error(), ENOLCK);
  b_->send_raw(wire::encode(wire::Released{77}));  // crosses the end of the lease
  EXPECT_EQ(read_back(*b_, f_, 4), "0123");
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
