// Locks of files with several homes: who waits in a circle over them is told so, one of each
// circle, and nobody else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "cluster.h"

namespace forebay::sim {
namespace {

class LocksTest : public ::testing::Test {
 protected:
  // A file that lives there.
  Handle file_at(const std::string& home) {
    for (;;) {
      const auto made = Program(cluster.client("a")).create(fmt::format("f{}", ++files_));
      FOREBAY_ASSERT(made.has_value(), made.error().message());
      if (cluster.home_of(made->handle) == home) return made->handle;
    }
  }
  const OpenFile& opened(const std::string& via, const Handle& file) {
    OpenFile& open = open_[via + file.bytes];
    if (open.right.empty()) open = Program(cluster.client(via)).open(file).value();
    return open;
  }
  Request about(Op op, const std::string& via, const Handle& file, uint64_t owner) {
    Request r;
    r.op = op;
    r.caller = this_process_caller();
    r.handle = file;
    if (op == Op::lock) r.right = opened(via, file).right;
    r.cookie = owner;
    return r;
  }
  using Answer = std::optional<int>;  // an errno
  std::shared_ptr<Answer> ask(const std::string& via, const Handle& file, uint64_t owner,
                              uint32_t flags = kFlagWait) {
    Request r = about(Op::lock, via, file, owner);
    r.flags = flags;
    auto answer = std::make_shared<Answer>();
    cluster.client(via).submit(std::move(r), [answer](Result<Reply>&& result) {
      *answer = result ? 0 : result.error().code();
    });
    return answer;
  }
  int lock(const std::string& via, const Handle& file, uint64_t owner, uint32_t flags = 0) {
    const auto answer = ask(via, file, owner, flags);
    cluster.loop.run_until([&] { return answer->has_value(); }, 1min);
    return answer->value_or(-1);
  }
  void unlock(const std::string& via, const Handle& file, uint64_t owner) {
    const auto done = cluster.client(via).call(about(Op::unlock, via, file, owner));
    EXPECT_TRUE(done) << done.error().message();
  }

  Cluster cluster{test_seed()};

 private:
  int files_ = 0;
  std::map<std::string, OpenFile> open_;
};

struct Party {
  std::string via;
  Handle has;
  uint64_t owner;
  std::shared_ptr<std::optional<int>> answer = {};
};

// Through whichever servers, and wherever the files live: the last of them to come is refused,
// soon, and when it gives up what it has the others get what they want.
TEST_F(LocksTest, ACircleOverSeveralHomesIsRefusedOnce) {
  for (int round = 0; round < 40; ++round) {
    const size_t many = 2 + cluster.random() % 3;
    std::vector<Party> parties;
    for (size_t i = 0; i < many; ++i) {
      parties.push_back({cluster.any_server(), file_at(cluster.any_server()), i});
      ASSERT_EQ(lock(parties[i].via, parties[i].has, i), 0);
    }
    for (size_t i = 0; i < many; ++i) {
      cluster.loop.run_for(std::chrono::milliseconds(50 + cluster.random() % 300));
      const Handle& wants = parties[(i + 1) % many].has;
      parties[i].answer = ask(parties[i].via, wants, i);
    }
    cluster.loop.run_for(1s);
    EXPECT_EQ(*parties.back().answer, EDEADLK) << "round " << round;
    for (size_t i = 0; i + 1 < many; ++i) EXPECT_FALSE(parties[i].answer->has_value());
    for (size_t i = many; i-- > 0;) {
      unlock(parties[i].via, parties[i].has, i);
      cluster.loop.run_for(100ms);
      if (i == 0) break;
      EXPECT_EQ(*parties[i - 1].answer, 0) << "round " << round;
      unlock(parties[i - 1].via, parties[i].has, i - 1);
    }
  }
}

TEST_F(LocksTest, ThoseWhoComeAtOnceAreNotAllRefused) {
  for (int round = 0; round < 20; ++round) {
    const Handle one = file_at("b"), other = file_at("c");
    ASSERT_EQ(lock("a", one, 1), 0);
    ASSERT_EQ(lock("c", other, 1), 0);
    const auto first = ask("a", other, 1), second = ask("c", one, 1);
    cluster.loop.run_until([&] { return first->has_value() || second->has_value(); }, 10s);
    cluster.loop.run_for(10s);
    ASSERT_NE(first->has_value(), second->has_value());
    EXPECT_EQ(first->value_or(0) + second->value_or(0), EDEADLK);
    unlock("a", one, 1);
    unlock("c", other, 1);
    cluster.loop.run_for(1s);
    unlock("a", other, 1);
    unlock("c", one, 1);
  }
}

// Readers before a writer who waits: who holds something elsewhere goes past it.
TEST_F(LocksTest, NoCircleNeedBeBehindOneWhoWaits) {
  const Handle x = file_at("b"), y = file_at("c");
  ASSERT_EQ(lock("a", x, 1), 0);
  ASSERT_EQ(lock("b", y, 1, kFlagShared), 0);
  const auto writer = ask("c", y, 1);
  cluster.loop.run_for(1s);
  const auto reader = ask("b", x, 1);
  EXPECT_EQ(lock("a", y, 1, kFlagShared | kFlagWait), 0);
  unlock("a", x, 1);
  unlock("a", y, 1);
  cluster.loop.run_for(1s);
  EXPECT_EQ(*reader, 0);
  EXPECT_FALSE(writer->has_value());
  unlock("b", y, 1);
  cluster.loop.run_for(1s);
  EXPECT_EQ(*writer, 0);
}

// Owners of the same numbers are others, if their clients are.
TEST_F(LocksTest, ALongWaitIsNoCircle) {
  const Handle x = file_at("a"), y = file_at("b");
  ASSERT_EQ(lock("a", x, 1), 0);
  ASSERT_EQ(lock("b", y, 1), 0);
  const auto waits = ask("c", x, 1), also = ask("c", y, 2), third = ask("b", x, 1);
  cluster.loop.run_for(10min);
  EXPECT_FALSE(waits->has_value() || also->has_value() || third->has_value());
  unlock("a", x, 1);
  unlock("b", y, 1);
  cluster.loop.run_for(1s);
  EXPECT_EQ(*waits, 0);
  EXPECT_EQ(*also, 0);
  EXPECT_FALSE(third->has_value());
  unlock("c", x, 1);
  cluster.loop.run_for(1s);
  EXPECT_EQ(*third, 0);
}

// More wait through one connection than may keep a slot there: they take turns.
TEST_F(LocksTest, ACircleBehindManyWhoWaitIsFound) {
  constexpr uint64_t kMany = 24;
  for (const std::string home : {"a", "b"}) {
    const Handle x = file_at(home), y = file_at("c"), wanted = file_at(home);
    ASSERT_EQ(lock("b", wanted, 1), 0);
    std::vector<std::shared_ptr<Answer>> others;
    for (uint64_t i = 0; i < kMany; ++i) others.push_back(ask("a", wanted, 100 + i));
    ASSERT_EQ(lock("a", x, 1), 0);
    ASSERT_EQ(lock("a", y, 2), 0);
    const auto first = ask("a", y, 1), second = ask("a", x, 2);
    cluster.loop.run_until([&] { return first->has_value() || second->has_value(); }, 5min);
    ASSERT_NE(first->has_value(), second->has_value()) << home;
    EXPECT_EQ(first->value_or(0) + second->value_or(0), EDEADLK);
    unlock("a", first->has_value() ? x : y, first->has_value() ? 1 : 2);
    cluster.loop.run_until([&] { return first->has_value() && second->has_value(); }, 1min);
    EXPECT_EQ(first->value_or(-1) + second->value_or(-1), EDEADLK) << home;
    unlock("b", wanted, 1);
    for (uint64_t i = 0; i < kMany; ++i) {
      const auto next = [&] {
        return std::ranges::find_if(others, [](const auto& one) { return one && *one; });
      };
      cluster.loop.run_until([&] { return next() != others.end(); }, 1min);
      ASSERT_NE(next(), others.end());
      const auto granted = next();
      EXPECT_EQ(**granted, Answer(0));
      granted->reset();
      unlock("a", wanted, 100 + static_cast<uint64_t>(granted - others.begin()));
    }
    for (const auto& [file, owner] :
         {std::pair(x, 1), std::pair(x, 2), std::pair(y, 1), std::pair(y, 2)})
      unlock("a", file, static_cast<uint64_t>(owner));
  }
}

// A server is killed and comes back while they hold and wait.
TEST_F(LocksTest, ACircleIsFoundAcrossRestarts) {
  for (const std::string killed : {"a", "b", "c"}) {
    const Handle x = file_at("b"), y = file_at("c");
    ASSERT_EQ(lock("a", x, 1), 0);
    ASSERT_EQ(lock("b", y, 1), 0);
    const auto first = ask("a", y, 1);
    cluster.loop.run_for(3s);
    cluster.kill(killed);
    cluster.loop.run_for(500ms);
    cluster.start(killed, {"a", "b", "c"});
    cluster.loop.run_for(30s);  // all have reclaimed theirs, or lost it
    const auto second = ask("b", x, 1);
    cluster.loop.run_for(30s);
    const int refused = (first->value_or(0) == EDEADLK) + (second->value_or(0) == EDEADLK);
    EXPECT_EQ(refused, 1) << killed << ": " << first->value_or(-1) << ", " << second->value_or(-1);
    unlock("a", x, 1);
    unlock("b", y, 1);
    cluster.loop.run_for(1s);
    unlock("a", y, 1);
    unlock("b", x, 1);
  }
}

// Owners who take random locks in any order and let all go when they are refused: with one lock
// each that they wait for, whoever is refused is in a circle just then, and nobody waits for ever.
class LocksStorm : public LocksTest {
 protected:
  struct Actor {
    std::string via;
    uint64_t owner = 0;
    std::set<size_t> has;
    std::optional<size_t> wants;
    std::shared_ptr<std::optional<int>> answer;
    int left = 60;
  };
  void run(bool in_order) {
    std::vector<Handle> files;
    for (int i = 0; i < 9; ++i) files.push_back(file_at(cluster.any_server()));
    std::vector<Actor> actors(8);
    for (size_t i = 0; i < actors.size(); ++i) {
      actors[i].via = std::string(1, static_cast<char>('a' + i % 3));
      actors[i].owner = i / 3;
    }
    int refused = 0;
    for (int turn = 0; turn < 200000; ++turn) {
      bool all_done = true;
      for (Actor& one : actors) {
        if (one.left > 0) step(one, actors, files, in_order, refused);
        all_done = all_done && one.left == 0;
      }
      if (all_done) break;
      cluster.loop.run_for(10ms);
    }
    for (const Actor& one : actors) EXPECT_EQ(one.left, 0) << "somebody waits for ever";
    EXPECT_EQ(refused != 0, !in_order);
  }

 private:
  void step(Actor& one, const std::vector<Actor>& all, const std::vector<Handle>& files,
            bool in_order, int& refused) {
    if (one.wants) {
      if (!one.answer->has_value()) return;
      const int how = **one.answer;
      if (how == 0) {
        one.has.insert(*std::exchange(one.wants, std::nullopt));
        return;
      }
      ASSERT_EQ(how, EDEADLK);
      EXPECT_TRUE(in_a_circle(one, all));
      ++refused;
      one.wants.reset();
      return let_go(one, files);
    }
    if (cluster.random() % 4 == 0) return;
    const size_t next = cluster.random() % files.size();
    const bool ordered = one.has.empty() || *one.has.rbegin() < next;
    if (one.has.size() == 3 || one.has.contains(next) || (in_order && !ordered)) {
      return let_go(one, files);
    }
    one.wants = next;
    one.answer = ask(one.via, files[next], one.owner);
  }
  void let_go(Actor& one, const std::vector<Handle>& files) {
    for (const size_t file : std::exchange(one.has, {})) unlock(one.via, files[file], one.owner);
    --one.left;
  }
  static bool in_a_circle(const Actor& one, const std::vector<Actor>& all) {
    const Actor* at = &one;
    for (size_t i = 0; i <= all.size(); ++i) {
      const Actor* holder = nullptr;
      for (const Actor& other : all) {
        const bool got = other.wants == at->wants && *other.answer == 0;
        if (&other != at && (got || other.has.contains(*at->wants))) holder = &other;
      }
      if (holder == &one) return true;
      if (!holder || !holder->wants) return false;
      at = holder;
    }
    return false;
  }
};

TEST_F(LocksStorm, OnlyThoseInACircleAreRefused) {
  run(false);
}

TEST_F(LocksStorm, OnlyThoseInACircleAreRefusedWhenConnectionsAreLost) {
  cluster.network.set_cut_chance(0.005);
  run(false);
  cluster.network.set_cut_chance(0);
}

TEST_F(LocksStorm, NobodyIsRefusedWhereAllKeepAnOrder) {
  run(true);
}

}  // namespace
}  // namespace forebay::sim
