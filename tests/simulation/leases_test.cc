// Leases of files that live at another server than the one that a client talks to: no copy that is
// used is older than a change that has completed, whoever made it, through whichever server.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <thread>

#include "cluster.h"

namespace forebay::sim {
namespace {

// One client's copy of what a file begins with, as long as it may have it.
class Copy final : public LeaseHolder {
 public:
  Copy(RemoteStore& store, const Handle& file) : program_(store), store_(store) {
    file_ = program_.open(file).value();
    store_.hold_leases(this);
  }
  ~Copy() override { store_.hold_leases(nullptr); }

  Result<std::string> get() {
    if (lease_ != 0 && kept_ && since_boot() < store_.leases_until()) return ++hits, *kept_;
    const uint64_t lease = take();
    auto read = program_.read(file_, 0, 20);
    if (read && lease != 0 && lease_ == lease) kept_ = *read;
    return read;
  }
  // 0: it was not given.
  uint64_t take() {
    Request ask;
    ask.op = Op::lease;
    ask.handle = file_.handle;
    ask.right = file_.right;
    ask.flags = kFlagShared;
    const auto taken = program_.call(std::move(ask));
    kept_.reset();
    lease_ = 0;
    if (!taken) return refused = taken.error().code(), 0;
    term = taken->count;
    if (early_.erase(taken->value) != 0) return store_.give_back(taken->value), 0;
    size = taken->attr.size;
    return lease_ = taken->value;
  }
  void give_back() {
    if (lease_ != 0) store_.give_back(std::exchange(lease_, 0));
  }
  bool holds() const { return lease_ != 0; }

  int hits = 0, refused = 0;
  uint64_t size = 0, term = 0;
  bool deaf = false;  // it does not answer
  size_t recalls = 0;

 private:
  void recalled(uint64_t lease) override {
    ++recalls;
    if (deaf) return;
    if (lease != lease_) return void(early_.insert(lease));
    lease_ = 0;
    kept_.reset();
    store_.give_back(lease);
  }
  void lost() override {
    lease_ = 0;
    kept_.reset();
  }

  Program program_;
  RemoteStore& store_;
  OpenFile file_;
  uint64_t lease_ = 0;
  std::optional<std::string> kept_;
  std::set<uint64_t> early_;
};

class LeasesTest : public ::testing::Test {
 protected:
  Handle file_at(const std::string& home) {
    for (int i = 0;; ++i) {
      const OpenFile made =
          Program(cluster.client("a")).create(fmt::format("{}{}", home, i)).value();
      if (cluster.home_of(made.handle) != home) continue;
      EXPECT_TRUE(Program(cluster.client("a")).write(made, 0, text(0)));
      return made.handle;
    }
  }
  static std::string text(int number) { return fmt::format("{:020}", number); }
  // Another one, of that server.
  RemoteStore& connect(const std::string& server) {
    more_.push_back(cluster.connect(
        server, cluster.network.transport(fmt::format("client {}", more_.size())), {}));
    return *more_.back();
  }

  Cluster cluster{test_seed()};
  std::vector<std::unique_ptr<RemoteStore>> more_;
};

TEST_F(LeasesTest, AChangeThroughAnyServerRecallsThem) {
  for (const std::string home : {"a", "b", "c"}) {
    const Handle file = file_at(home);
    Copy one(connect("a"), file), same_server(connect("a"), file), third(connect("c"), file);
    int number = 0;
    for (const std::string via : {"a", "b", "c"}) {
      RemoteStore& writer = connect(via);
      const OpenFile open = Program(writer).open(file).value();
      for (Copy* copy : {&one, &same_server, &third}) {
        EXPECT_EQ(*copy->get(), text(number));
        EXPECT_EQ(*copy->get(), text(number));
        EXPECT_TRUE(copy->holds()) << home << ", " << copy->refused;
        EXPECT_EQ(copy->size, 20u);
      }
      const Time before = cluster.loop.now();
      ASSERT_TRUE(Program(writer).write(open, 0, text(++number)));
      EXPECT_LT(cluster.loop.now() - before, 1s);
      for (Copy* copy : {&one, &same_server, &third}) {
        EXPECT_FALSE(copy->holds()) << home << " changed through " << via;
        EXPECT_EQ(*copy->get(), text(number));
      }
    }
    EXPECT_GE(one.hits, 3);
  }
}

// The writer's own are left to it.
TEST_F(LeasesTest, AChangeRecallsNothingOfItsOwn) {
  const Handle file = file_at("b");
  RemoteStore& store = connect("a");
  Copy own(store, file), other(connect("a"), file);
  EXPECT_EQ(*own.get(), text(0));
  EXPECT_EQ(*other.get(), text(0));
  const OpenFile open = Program(store).open(file).value();
  ASSERT_TRUE(Program(store).write(open, 0, text(1)));
  EXPECT_TRUE(own.holds());
  EXPECT_FALSE(other.holds());
}

TEST_F(LeasesTest, OfOneWhoDoesNotAnswerHoldsAChangeUpForItsTimeOnly) {
  const Handle file = file_at("b");
  Copy one(connect("a"), file);
  RemoteStore& writer = connect("c");
  const OpenFile open = Program(writer).open(file).value();
  ASSERT_EQ(*one.get(), text(0));
  one.deaf = true;
  const Time before = cluster.loop.now();
  ASSERT_TRUE(Program(writer).write(open, 0, text(1)));
  EXPECT_GT(cluster.loop.now() - before, 1s);
  EXPECT_LT(cluster.loop.now() - before, 6s);
  EXPECT_EQ(one.recalls, 1u);
  // It is cut off (its own clock, which is not the simulated one, would have told it before), and
  // the servers are still at one.
  cluster.loop.run_for(1s);
  one.deaf = false;
  EXPECT_EQ(*one.get(), text(1));
}

TEST_F(LeasesTest, NoneIsHeldForNobody) {
  const Handle file = file_at("b");
  Copy one(connect("a"), file);
  ASSERT_EQ(*one.get(), text(0));
  one.give_back();
  cluster.loop.run_for(11s);
  EXPECT_NE(cluster.status("b").find(R"("leases": 0)"), std::string::npos) << cluster.status("b");
}

// Its client may count what it answers for more than this server has been promised.
TEST_F(LeasesTest, IsNotGivenWhereItsHomeTakesLongToAnswer) {
  const Handle file = file_at("b");
  RemoteStore& store = connect("a");
  Copy one(store, file);
  cluster.hold("b", Op::getattr);  // which the answer to a lease brings
  cluster.loop.after(100ms, [&] {
    std::this_thread::sleep_for(350ms);  // by the clock by which leases are counted
    cluster.release("b");
  });
  EXPECT_EQ(one.take(), 0u);
  EXPECT_EQ(one.refused, EAGAIN);
  cluster.loop.run_for(100ms);
  EXPECT_NE(cluster.status("b").find(R"("leases": 0)"), std::string::npos) << cluster.status("b");
  EXPECT_EQ(*one.get(), text(0));
  EXPECT_EQ(*one.get(), text(0));
  EXPECT_EQ(one.hits, 1);
}

// Its server has another lease then, or none, in place of the one that somebody else's copy hangs
// on.
TEST_F(LeasesTest, WhatIsNotGivenLeavesNobodyWithAnOldCopy) {
  const Handle file = file_at("b");
  Copy one(connect("a"), file), late(connect("a"), file);
  ASSERT_EQ(*one.get(), text(0));
  cluster.hold("b", Op::getattr);
  cluster.loop.after(100ms, [&] {
    std::this_thread::sleep_for(350ms);
    cluster.release("b");
  });
  EXPECT_EQ(late.take(), 0u);
  const OpenFile open = Program(cluster.client("c")).open(file).value();
  ASSERT_TRUE(Program(cluster.client("c")).write(open, 0, text(1)));
  EXPECT_EQ(*one.get(), text(1));
  EXPECT_EQ(one.hits, 0);
}

// What a server has lost at another one, and its clients have not let go of yet.
TEST_F(LeasesTest, NobodyWhoWaitsOutlivesTheServer) {
  Copy one(connect("a"), file_at("b"));
  ASSERT_EQ(*one.get(), text(0));
  one.deaf = true;
  cluster.kill("b");
  cluster.loop.run_for(100ms);
  EXPECT_EQ(one.recalls, 1u);
}

// Random reads of copies, while one client after the other changes the file, connections are lost
// and servers end and come back.
class LeasesStorm : public LeasesTest {
 protected:
  void run(bool kill) {
    const Handle file = file_at(cluster.any_server());
    std::vector<std::unique_ptr<Copy>> copies;
    for (const std::string via : {"a", "a", "b", "c"}) {
      copies.push_back(std::make_unique<Copy>(connect(via), file));
    }
    std::map<std::string, OpenFile> open;
    for (const std::string via : {"a", "b", "c"}) {
      open[via] = Program(cluster.client(via)).open(file).value();
    }
    int written = 0, completed = 0;
    bool under_way = false;
    std::string bytes;
    for (int turn = 0; turn < 1500; ++turn) {
      if (!under_way && cluster.random() % 10 == 0) {
        const std::string via = cluster.any_server();
        bytes = text(++written);
        under_way = true;
        Program program(cluster.client(via));
        program.store().submit(program.transfer(Op::write, open[via], 0, bytes),
                               [&](Result<Reply>&& result) {
                                 under_way = false;
                                 if (result) completed = written;
                               });
      }
      if (kill && cluster.random() % 150 == 0) {
        const std::string name = cluster.any_server();
        cluster.kill(name);
        cluster.loop.run_for(std::chrono::milliseconds(cluster.random() % 1500));
        cluster.start(name, {"a", "b", "c"});
      }
      const int at_least = completed;
      const auto got = copies[cluster.random() % copies.size()]->get();
      if (got) {
        ASSERT_GE(std::stoi(*got), at_least) << "turn " << turn;
        ASSERT_LE(std::stoi(*got), written);
      }
      cluster.loop.run_for(std::chrono::milliseconds(cluster.random() % 20));
    }
    cluster.loop.run_until([&] { return !under_way; }, 10min);
    EXPECT_FALSE(under_way);
    int hits = 0;
    for (const auto& copy : copies) hits += copy->hits;
    EXPECT_GT(hits, 20);
    EXPECT_GT(completed, 0);
  }
};

TEST_F(LeasesStorm, NoCopyIsOlderThanACompletedWrite) {
  run(false);
}

TEST_F(LeasesStorm, NoCopyIsOlderThanACompletedWriteWhenConnectionsAreLost) {
  cluster.network.set_cut_chance(0.003);
  run(false);
  cluster.network.set_cut_chance(0);
}

TEST_F(LeasesStorm, NoCopyIsOlderThanACompletedWriteWhenServersEnd) {
  run(true);
}

}  // namespace
}  // namespace forebay::sim
