// Advisory locks of a server's clients, on the simulated loop; and the table's life after a
// restart.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/lock_table.h"
#include "server/raw_client.h"

namespace forebay::server {
namespace {

Request lock_request(const OpenFile& file, uint64_t offset, uint64_t length, uint32_t flags = 0,
                     uint64_t owner = 1) {
  Request r = request(Op::lock, file.handle);
  r.right = file.right;
  r.offset = Offset(offset);
  r.length = Length(length);
  r.cookie = owner;
  r.flags = flags;
  return r;
}
Request unlock_request(const OpenFile& file, uint64_t offset, uint64_t length, uint64_t owner = 1) {
  Request r = lock_request(file, offset, length, 0, owner);
  r.op = Op::unlock;
  r.right = {};
  return r;
}
Request test_request(const OpenFile& file, uint64_t offset, uint64_t length) {
  Request r = unlock_request(file, offset, length);
  r.op = Op::lock_test;
  return r;
}

TEST(Lock, ExcludesOtherClientsUntilUnlocked) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 10, 10))->error(), 0);
  EXPECT_EQ(b->call(lock_request(f, 19, 1))->error(), EAGAIN);
  EXPECT_EQ(b->call(lock_request(f, 20, 0))->error(), 0);
  const auto seen = b->call(test_request(f, 0, 0));
  EXPECT_EQ(seen->reply().count, 1u);
  EXPECT_EQ(seen->reply().locked.offset, Offset(10));
  EXPECT_EQ(seen->reply().locked.length, Length(10));
  const auto end = a->call(test_request(f, 0, 0));
  EXPECT_EQ(end->reply().locked.offset, Offset(20));
  EXPECT_EQ(end->reply().locked.length, Length(0)) << "to the end of the file";
  auto waits = b->send(lock_request(f, 0, 30, kFlagWait));
  sim.loop.run_for(1h);  // no deadline is for it
  EXPECT_FALSE(waits->done());
  EXPECT_EQ(a->call(unlock_request(f, 0, 0))->error(), 0);
  EXPECT_EQ(b->wait(waits).error(), 0);
  EXPECT_EQ(b->call(test_request(f, 0, 0))->reply().count, 0u);
}

TEST(Lock, OnlyServersAskEachOtherAboutThoseThatWait) {
  SimServer sim(test_seed());
  auto a = sim.client("a");
  const OpenFile f = create(*a, "f");
  for (uint64_t question = 0; question < 4; ++question) {
    Request ask = request(Op::lock_waits, f.handle);
    ask.value = question;
    ask.data = attr::pack(std::vector<attr::LockOwner>(2));
    EXPECT_EQ(a->call(std::move(ask))->error(), EPERM);
  }
}

TEST(Lock, OwnersOfOneClientExcludeEachOther) {
  SimServer sim(test_seed());
  auto a = sim.client("a");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 0, 10, 0, 1))->error(), 0);
  EXPECT_EQ(a->call(lock_request(f, 0, 10, kFlagShared, 2))->error(), EAGAIN);
  EXPECT_EQ(a->call(lock_request(f, 0, 10, kFlagShared, 1))->error(), 0);
  EXPECT_EQ(a->call(lock_request(f, 0, 10, kFlagShared, 2))->error(), 0);
}

TEST(Lock, RefusesDeadlocksAndNonsense) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f"), g = create(*a, "g");
  EXPECT_EQ(a->call(lock_request(f, 0, 1))->error(), 0);
  EXPECT_EQ(b->call(lock_request(g, 0, 1))->error(), 0);
  auto waits = a->send(lock_request(g, 0, 1, kFlagWait));
  sim.loop.run_for(1s);
  EXPECT_EQ(b->call(lock_request(f, 0, 1, kFlagWait))->error(), EDEADLK);
  EXPECT_EQ(b->call(unlock_request(g, 0, 1))->error(), 0);
  EXPECT_EQ(a->wait(waits).error(), 0);
  EXPECT_EQ(a->call(lock_request(f, 5, 0, kFlagWhole))->error(), EINVAL);
  EXPECT_EQ(a->call(lock_request(f, kMaxOffset, 0))->error(), EINVAL);
}

TEST(Lock, OutlivesAConnectionButNotItsSession) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 0, 10))->error(), 0);
  auto waits = b->send(lock_request(f, 0, 10, kFlagWait));
  a->hang_up();
  sim.loop.run_for(10s);
  EXPECT_FALSE(waits->done());
  ASSERT_TRUE(a->resume());
  EXPECT_TRUE(a->welcome.resumed);
  sim.loop.run_for(100s);
  EXPECT_FALSE(waits->done());
  a->hang_up();
  sim.loop.run_for(100s);  // its grace is over
  EXPECT_EQ(b->wait(waits).error(), 0);
}

// ---- Clients whose process the kernel knows ----

Peer process(pid_t pid) {
  Peer peer;
  peer.caller = this_process_caller();
  peer.pid = pid;
  peer.where = "sim process";
  return peer;
}

class LockOfAProcess : public ::testing::Test {
 protected:
  static std::unique_ptr<RawClient> client(SimServer& sim, const std::string& host, pid_t pid,
                                           pid_t said) {
    auto made = std::make_unique<RawClient>(sim.loop, sim.net, host, process(pid));
    made->hello.pid = static_cast<uint32_t>(said);
    EXPECT_TRUE(made->connect());
    return made;
  }
  static std::unique_ptr<RawClient> client(SimServer& sim, const std::string& host, pid_t pid) {
    return client(sim, host, pid, pid);
  }
  // How long another client waits for what this one held when its connection was lost.
  static Duration held_by(pid_t pid, pid_t said) {
    SimServer sim(test_seed());
    auto a = client(sim, "a", pid, said), b = sim.client("b");
    const OpenFile f = create(*a, "f");
    EXPECT_EQ(a->call(lock_request(f, 0, 10))->error(), 0);
    auto waits = b->send(lock_request(f, 0, 10, kFlagWait));
    sim.loop.run_for(1s);
    a->hang_up();
    const Time begin = sim.loop.now();
    EXPECT_EQ(b->wait(waits).error(), 0);
    return sim.loop.now() - begin;
  }
};

TEST_F(LockOfAProcess, IsFreeWhenThatHasEndedAndNobodyHasToWaitForIt) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, child, &ended, WEXITED | WNOWAIT), 0);
  EXPECT_LT(held_by(child, child), 1s) << "a zombie";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_LT(held_by(child, child), 1s);
  EXPECT_GE(held_by(child, child + 1), 29s) << "another's, who is gone";
}

// A forked child may present what it has inherited.
TEST_F(LockOfAProcess, EndsBeforeItsRights) {
  SimServer sim(test_seed());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  auto a = client(sim, "a", child), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(data_request(Op::write, f, range(0, 3)), "abc")->error(), 0);
  EXPECT_EQ(a->call(request(Op::remove, a->welcome.root, "f"))->error(), 0);
  a->hang_up();
  sim.loop.run_for(10s);
  EXPECT_EQ(sim.memory->open_rights(), 1u);
  EXPECT_EQ(read_back(*b, f, 3), "abc");  // without a name, and still there
  sim.loop.run_for(100s);
  EXPECT_EQ(read_back(*b, f, 3), "abc");
  b->send_raw(wire::encode_goodbye("bye"));
  sim.loop.run_for(1s);
  EXPECT_EQ(sim.memory->open_rights(), 0u);
}

TEST_F(LockOfAProcess, IsHeldForItsGraceWhileThatLivesOrNobodyCanTell) {
  EXPECT_GE(held_by(::getpid(), ::getpid()), 29s);
  EXPECT_GE(held_by(0, 0), 29s);
}

TEST_F(LockOfAProcess, IsFreeSoonAfterTheEndOfOneThatWasCutOffBefore) {
  SimServer sim(test_seed());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::pause(), ::_exit(0);
  auto a = client(sim, "a", child), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 0, 10))->error(), 0);
  auto waits = b->send(lock_request(f, 0, 10, kFlagWait));
  a->hang_up();
  sim.loop.run_for(10s);
  EXPECT_FALSE(waits->done());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  sim.loop.run_for(1s);
  EXPECT_TRUE(waits->done());
}

TEST_F(LockOfAProcess, ThatWaitsAndEndsIsNotGranted) {
  SimServer sim(test_seed());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  auto a = sim.client("a"), b = client(sim, "b", child), c = sim.client("c");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 0, 10))->error(), 0);
  auto dead = b->send(lock_request(f, 0, 10, kFlagWait));
  sim.loop.run_for(1s);
  auto next = c->send(lock_request(f, 0, 10, kFlagWait));
  b->hang_up();
  sim.loop.run_for(1s);
  EXPECT_EQ(a->call(unlock_request(f, 0, 10))->error(), 0);
  sim.loop.run_for(1s);
  EXPECT_TRUE(next->done());
  EXPECT_FALSE(dead->done());
}

TEST(Lock, IsGrantedToAClientThatIsAwayAndComesBack) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 0, 10))->error(), 0);
  auto waits = b->send(lock_request(f, 0, 10, kFlagWait));
  sim.loop.run_for(1s);
  b->hang_up();
  sim.loop.run_for(1s);
  EXPECT_EQ(a->call(unlock_request(f, 0, 10))->error(), 0);
  ASSERT_TRUE(b->resume());
  EXPECT_EQ(b->wait(waits).error(), 0);
  EXPECT_EQ(a->call(lock_request(f, 0, 10))->error(), EAGAIN);
}

TEST(Lock, AWaitThatIsCancelledIsForgotten) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b"), c = sim.client("c");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 0, 10, kFlagShared))->error(), 0);
  auto writer = b->send(lock_request(f, 0, 10, kFlagWait));
  sim.loop.run_for(1s);
  auto reader = c->send(lock_request(f, 0, 10, kFlagWait | kFlagShared));
  sim.loop.run_for(1s);
  EXPECT_FALSE(reader->done()) << "behind the writer";
  b->send_raw(wire::encode(wire::Cancel{writer->message.id}));
  EXPECT_EQ(b->wait(writer).error(), ECANCELED);
  EXPECT_EQ(c->wait(reader).error(), 0);
}

TEST(Lock, WaitsThatAreUnderWayDoNotKeepAServerFromStopping) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  EXPECT_EQ(a->call(lock_request(f, 0, 10))->error(), 0);
  auto waits = b->send(lock_request(f, 0, 10, kFlagWait));
  sim.loop.run_for(1s);
  bool stopped = false;
  sim.server->stop(10s, [&] { stopped = true; });
  sim.loop.run_for(5s);
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(b->goodbye);
  EXPECT_FALSE(waits->done()) << "it is for the successor";
}

// ---- The table ----

class LockTableTest : public ::testing::Test {
 protected:
  using Lock = LockTable::Lock;
  using Life = std::optional<uint64_t>;
  int lock(LockTable& table, uint64_t client, Life reclaim = {}, bool relayed = false,
           uint64_t owner = 1) {
    const Lock range{LockTable::Kind::range, true, {Offset(0), Length(10)}};
    const auto got =
        table.lock({"f", {client, owner}, range, false, reclaim, 4711, relayed}, loop_, [] {});
    return got ? 0 : got.error().code();
  }
  bool marked() const { return ::access(marker_.c_str(), F_OK) == 0; }

  SimLoop loop_{1};
  TempDir dir_;
  const std::string marker_ = dir_.path() + "/locks";
};

TEST_F(LockTableTest, AnOrderlyEndWithoutLocksLeavesNothingBehind) {
  {
    LockTable table(marker_, 10s);
    table.begin(loop_.now(), 1);
    EXPECT_EQ(table.grace_left(loop_.now()), 0s);
    EXPECT_EQ(lock(table, 1), 0);
    EXPECT_TRUE(marked());
    table.forget(1);
  }
  EXPECT_FALSE(marked());
}

TEST_F(LockTableTest, OnlyWhatIsReclaimedInTimeIsGranted) {
  {
    LockTable table(marker_, 10s);
    table.begin(loop_.now(), 1);
    EXPECT_EQ(lock(table, 1), 0);
    EXPECT_EQ(lock(table, 1, 1), ENOLCK) << "nothing was lost";
  }
  LockTable table(marker_, 10s);
  const Time begin = loop_.now();
  table.begin(begin, 2);
  EXPECT_EQ(table.grace_left(begin), 10s);
  EXPECT_EQ(table.grace_left(begin + 4s), 6s);
  EXPECT_EQ(lock(table, 5, 1), 0);
  EXPECT_EQ(lock(table, 6, 1), EAGAIN) << "two cannot have held it";
  EXPECT_EQ(table.grace_left(begin + 10s), 0s);
  EXPECT_EQ(lock(table, 7, 1), ENOLCK);
  EXPECT_EQ(lock(table, 7), EAGAIN);
  table.forget(5);
  EXPECT_EQ(lock(table, 7), 0);
}

// A server that ends again before its grace is over: whoever held a lock in the first life has it
// in the third, whether or not it was there in the second.
TEST_F(LockTableTest, ALifeInBetweenDoesNotLoseWhatNobodyElseHad) {
  std::optional<LockTable> table;
  for (uint64_t life = 1; life <= 3; ++life) {
    table.reset();
    table.emplace(marker_, 10s);
    table->begin(loop_.now(), life);
    if (life == 1) {
      EXPECT_EQ(lock(*table, 1), 0);
    } else {
      EXPECT_GT(table->grace_left(loop_.now()), 0s);
      EXPECT_EQ(lock(*table, 10 + life, 1), 0) << "in life " << life;
    }
  }
}

// But one that was away while another had the lock does not get it back, though the other has let
// go of it.
TEST_F(LockTableTest, ALifeInBetweenInWhichAnotherHadItCounts) {
  {
    LockTable table(marker_, 10s);
    table.begin(loop_.now(), 1);
    EXPECT_EQ(lock(table, 1), 0);
  }
  {
    LockTable table(marker_, 10s);
    table.begin(loop_.now(), 2);
    EXPECT_EQ(table.grace_left(loop_.now() + 11s), 0s);
    EXPECT_EQ(lock(table, 2), 0);
    table.unlock("f", {2, 1}, LockTable::Kind::range, {Offset(0), Length(10)});
    EXPECT_EQ(lock(table, 3), 0);
  }
  LockTable table(marker_, 10s);
  table.begin(loop_.now(), 3);
  EXPECT_EQ(lock(table, 10, 1), ENOLCK) << "others had it";
  EXPECT_EQ(lock(table, 30, 2), 0);
}

TEST_F(LockTableTest, AnotherServersNextLifeInheritsByTheOwnersNumber) {
  LockTable table(marker_, 10s);
  table.begin(loop_.now(), 1);
  EXPECT_EQ(lock(table, 1, {}, true, 4711), 0);
  EXPECT_EQ(lock(table, 2, 1, true, 4712), ENOLCK) << "another owner";
  EXPECT_EQ(lock(table, 2, 1, false, 4711), ENOLCK) << "no server";
  EXPECT_EQ(lock(table, 2, {}, true, 4711), EAGAIN) << "nothing is reclaimed";
  EXPECT_EQ(lock(table, 2, 1, true, 4711), 0);
  table.forget(1);  // the life before is over
  EXPECT_EQ(lock(table, 3), EAGAIN);
  EXPECT_EQ(lock(table, 4, 1, true, 4711), 0) << "and the next, and so on";
  table.forget(2);
  EXPECT_EQ(lock(table, 3), EAGAIN);
  table.forget(4);
  EXPECT_EQ(lock(table, 3), 0);
}

}  // namespace
}  // namespace forebay::server
