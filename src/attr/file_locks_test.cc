#include "attr/file_locks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/testing.h"

// Not a nameless one: other tests of this folder have oracles too.
namespace forebay::attr::file_locks_test {

using Kind = FileLocks::Kind;
using Lock = FileLocks::Lock;
using Owner = FileLocks::Owner;
using Outcome = FileLocks::Outcome;
using State = Outcome::State;
using Ticket = FileLocks::Ticket;
using Tickets = std::vector<Ticket>;

constexpr bool kWait = true, kTry = false;
constexpr bool kShared = false, kExclusive = true;

Lock range(bool exclusive, uint64_t offset, uint64_t length) {
  return {Kind::range, exclusive, ext(offset, length)};
}
Lock whole(bool exclusive) {
  return {Kind::whole, exclusive, ext(0, kMaxOffset)};
}

State state(Result<Outcome> outcome) {
  return outcome.value().state;
}

TEST(FileLocks, ExclusiveExcludesOthersOnly) {
  FileLocks locks;
  EXPECT_EQ(state(locks.lock("f", {1, 1}, range(kExclusive, 0, 10), kTry)), State::granted);
  EXPECT_EQ(state(locks.lock("f", {2, 1}, range(kShared, 9, 1), kTry)), State::refused);
  EXPECT_EQ(state(locks.lock("f", {1, 2}, range(kShared, 9, 1), kTry)), State::refused);
  EXPECT_EQ(state(locks.lock("f", {2, 1}, range(kShared, 10, 1), kTry)), State::granted);
  EXPECT_EQ(state(locks.lock("g", {2, 1}, range(kExclusive, 0, 10), kTry)), State::granted);
  EXPECT_EQ(state(locks.lock("f", {1, 1}, range(kShared, 0, 5), kTry)), State::granted);
  EXPECT_EQ(state(locks.lock("f", {2, 1}, range(kShared, 0, 5), kTry)), State::granted);
  EXPECT_EQ(state(locks.lock("f", {2, 1}, whole(kExclusive), kTry)), State::granted);
}

// What a search over several places goes by (lock_circles.h).
TEST(FileLocks, WhoIsInTheWayOfALockThatWaits) {
  FileLocks locks;
  locks.lock("f", {1, 1}, range(kShared, 0, 10), kTry).value();
  locks.lock("f", {2, 1}, range(kShared, 5, 10), kTry).value();
  const Ticket waits = locks.lock("f", {3, 1}, range(kExclusive, 0, 20), kWait).value().ticket;
  locks.lock("f", {4, 1}, range(kShared, 0, 1), kWait).value();
  std::map<Owner, uint64_t> held;
  const auto stands = [&](uint64_t id) {
    bool found = false;
    locks.in_the_way(waits, [&](const FileLocks::InTheWay& one) { found |= one.held == id; });
    return found;
  };
  const auto note = [&](const FileLocks::InTheWay& one) {
    EXPECT_EQ(one.ticket, waits);
    EXPECT_EQ(one.waiter, (Owner{3, 1}));
    held[one.holder] = one.held;
  };
  locks.in_the_way(Owner{3, 1}, note);
  EXPECT_EQ(held.size(), 2u) << "not who waits";
  // It is another lock once it was given up, or a part of it.
  locks.unlock("f", {1, 1}, Kind::range, ext(0, 2));
  EXPECT_FALSE(stands(held.at({1, 1})));
  EXPECT_TRUE(stands(held.at({2, 1})));
  locks.unlock("f", {2, 1}, Kind::range, ext(5, 10));
  locks.lock("f", {2, 1}, range(kShared, 5, 10), kTry).value();
  EXPECT_FALSE(stands(held.at({2, 1})));
  locks.give_up(waits);
  locks.in_the_way(waits, [](const FileLocks::InTheWay&) { FAIL() << "it does not wait"; });
}

// Its owner held nothing when it asked, and may hold something elsewhere by now.
TEST(FileLocks, SoIsOneThatItWaitsBehind) {
  FileLocks locks;
  locks.lock("f", {1, 1}, range(kExclusive, 0, 1), kTry).value();
  const Ticket first = locks.lock("f", {2, 1}, range(kExclusive, 0, 2), kWait).value().ticket;
  const Ticket second = locks.lock("f", {3, 1}, range(kExclusive, 1, 1), kWait).value().ticket;
  std::vector<FileLocks::InTheWay> seen;
  locks.in_the_way(second, [&](const FileLocks::InTheWay& one) { seen.push_back(one); });
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].held, first);
  EXPECT_EQ(seen[0].holder, (Owner{2, 1}));
  locks.give_up(first);
  locks.in_the_way(second, [](const FileLocks::InTheWay&) { FAIL() << "it is granted"; });
}

TEST(FileLocks, WhoHoldsSomethingElsewhereWaitsBehindNobody) {
  FileLocks locks;
  locks.lock("f", {1, 1}, range(kShared, 0, 10), kTry).value();
  locks.lock("f", {2, 1}, range(kExclusive, 0, 10), kWait).value();
  EXPECT_EQ(state(locks.lock("f", {3, 1}, range(kShared, 0, 10), kWait)), State::waits);
  EXPECT_EQ(state(locks.lock("f", {4, 1}, range(kShared, 0, 10), kWait, true)), State::granted);
}

TEST(FileLocks, AnHeirHasAllOfItOrNothing) {
  FileLocks locks;
  locks.lock("f", {1, 7}, range(kExclusive, 0, 20), kTry).value();
  locks.lock("f", {1, 7}, range(kShared, 20, 10), kTry).value();
  const Ticket waits = locks.lock("f", {3, 1}, range(kShared, 0, 5), kWait).value().ticket;
  EXPECT_FALSE(locks.inherit("f", {1, 7}, {2, 7}, range(kExclusive, 10, 20))) << "shared";
  EXPECT_FALSE(locks.inherit("f", {1, 7}, {2, 7}, range(kShared, 20, 11))) << "not all of it";
  EXPECT_FALSE(locks.inherit("f", {1, 8}, {2, 7}, range(kShared, 0, 5))) << "another's";
  EXPECT_FALSE(locks.inherit("g", {1, 7}, {2, 7}, range(kShared, 0, 5)));
  EXPECT_EQ(locks.inherit("f", {1, 7}, {2, 7}, range(kExclusive, 0, 10)), Tickets{});
  EXPECT_EQ(locks.inherit("f", {1, 7}, {2, 7}, range(kShared, 10, 20)), Tickets{});
  EXPECT_EQ(locks.forget(1), Tickets{}) << "nothing is left of it";
  EXPECT_EQ(state(locks.lock("f", {4, 1}, range(kShared, 10, 20), kTry)), State::granted);
  EXPECT_EQ(state(locks.lock("f", {4, 1}, range(kExclusive, 10, 20), kTry)), State::refused);
  EXPECT_EQ(locks.inherit("f", {2, 7}, {5, 7}, range(kShared, 0, 10)), Tickets{waits}) << "less";
}

TEST(FileLocks, TestNamesTheLowestInTheWay) {
  FileLocks locks;
  locks.lock("f", {1, 1}, range(kShared, 20, 10), kTry).value();
  locks.lock("f", {2, 7}, range(kExclusive, 40, 10), kTry).value();
  EXPECT_FALSE(locks.test("f", {3, 0}, range(kShared, 0, 40)));
  const auto held = locks.test("f", {3, 0}, range(kExclusive, 25, 100));
  ASSERT_TRUE(held);
  EXPECT_EQ(held->owner, (Owner{1, 1}));
  EXPECT_EQ(held->lock.range, ext(20, 10));
  EXPECT_FALSE(locks.test("f", {1, 1}, range(kExclusive, 0, 40)));
  EXPECT_FALSE(locks.test("nobody's", {1, 1}, range(kExclusive, 0, 40)));
}

TEST(FileLocks, OwnLocksAreSplitAndJoined) {
  FileLocks locks;
  const Owner me{1, 1};
  locks.lock("f", me, range(kExclusive, 0, 30), kTry).value();
  locks.lock("f", me, range(kShared, 10, 10), kTry).value();
  EXPECT_EQ(locks.held(), 3u);
  locks.lock("f", me, range(kExclusive, 10, 10), kTry).value();
  EXPECT_EQ(locks.held(), 1u);
  locks.unlock("f", me, Kind::range, ext(5, 5));
  EXPECT_EQ(locks.held(), 2u);
  locks.unlock("f", me, Kind::range, ext(0, kMaxOffset));
  EXPECT_EQ(locks.held(), 0u);
}

TEST(FileLocks, WritersAreNotStarvedByReadersWhoHoldNothing) {
  FileLocks locks;
  locks.lock("f", {1, 1}, range(kShared, 0, 10), kTry).value();
  const Ticket writer = locks.lock("f", {2, 1}, range(kExclusive, 0, 10), kWait).value().ticket;
  const Ticket reader = locks.lock("f", {3, 1}, range(kShared, 0, 10), kWait).value().ticket;
  EXPECT_NE(reader, 0u);
  EXPECT_EQ(locks.unlock("f", {1, 1}, Kind::range, ext(0, 10)), Tickets{writer});
  EXPECT_EQ(locks.unlock("f", {2, 1}, Kind::range, ext(0, 10)), Tickets{reader});
}

TEST(FileLocks, WhoHoldsSomethingDoesNotWaitBehindOthers) {
  FileLocks locks;
  locks.lock("f", {1, 1}, range(kShared, 0, 10), kTry).value();
  locks.lock("f", {2, 1}, range(kExclusive, 0, 10), kWait).value();
  EXPECT_EQ(state(locks.lock("f", {1, 1}, range(kShared, 5, 10), kWait)), State::granted);
}

TEST(FileLocks, DeadlocksAreRefusedAcrossFiles) {
  FileLocks locks;
  locks.lock("a", {1, 1}, range(kExclusive, 0, 1), kTry).value();
  locks.lock("b", {2, 1}, range(kExclusive, 0, 1), kTry).value();
  locks.lock("c", {3, 1}, range(kExclusive, 0, 1), kTry).value();
  const Ticket one = locks.lock("b", {1, 1}, range(kExclusive, 0, 1), kWait).value().ticket;
  const Ticket two = locks.lock("c", {2, 1}, range(kShared, 0, 1), kWait).value().ticket;
  const auto three = locks.lock("a", {3, 1}, range(kShared, 0, 1), kWait);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code(), EDEADLK);
  EXPECT_EQ(locks.forget(3), Tickets{two});
  EXPECT_EQ(locks.forget(2), Tickets{one});
  EXPECT_EQ(locks.forget(1), Tickets{});
  EXPECT_EQ(locks.held() + locks.waiting(), 0u);
}

// Each gives up what it has before it waits, so one of them can go on.
TEST(FileLocks, TwoSharedWholeLocksMayBothAskForMore) {
  FileLocks locks;
  locks.lock("f", {1, 1}, whole(kShared), kTry).value();
  locks.lock("f", {2, 1}, whole(kShared), kTry).value();
  const Ticket one = locks.lock("f", {1, 1}, whole(kExclusive), kWait).value().ticket;
  EXPECT_EQ(state(locks.lock("f", {2, 1}, whole(kExclusive), kWait)), State::granted);
  EXPECT_EQ(locks.unlock("f", {2, 1}, Kind::whole, ext(0, kMaxOffset)), Tickets{one});
}

TEST(FileLocks, LimitsHold) {
  FileLocks locks({4, 3});
  for (uint64_t i = 0; i < 3; ++i)
    locks.lock("f", {1, i}, range(kExclusive, 10 * i, 1), kTry).value();
  EXPECT_EQ(locks.lock("f", {1, 9}, range(kExclusive, 90, 1), kTry).error().code(), ENOLCK);
  EXPECT_EQ(state(locks.lock("f", {2, 1}, range(kExclusive, 0, 1), kWait)), State::waits);
  EXPECT_EQ(locks.lock("f", {3, 1}, range(kExclusive, 90, 1), kTry).error().code(), ENOLCK);
}

// The rules taken literally, byte by byte.
class Oracle {
 public:
  static constexpr uint64_t kBytes = 24;
  struct Wait {
    Ticket ticket;
    int file;
    Owner owner;
    Lock lock;
    bool behind;
  };

  bool conflicts(const Wait& w, size_t before) const {
    for (uint64_t b = w.lock.range.offset.value; b < w.lock.range.end().value; ++b) {
      for (const auto& [owner, exclusive] : at(w.file, b))
        if (owner != w.owner && (exclusive || w.lock.exclusive)) return true;
    }
    for (size_t i = 0; w.behind && i < before; ++i) {
      if (hinders(waits[i], w)) return true;
    }
    return false;
  }
  static bool hinders(const Wait& a, const Wait& b) {
    return a.file == b.file && a.owner != b.owner && a.lock.range.overlaps(b.lock.range) &&
           (a.lock.exclusive || b.lock.exclusive);
  }
  bool holds(Owner owner) const {
    for (const auto& [place, owners] : bytes)
      if (owners.contains(owner)) return true;
    return false;
  }
  void take(const Wait& w) {
    for (uint64_t b = w.lock.range.offset.value; b < w.lock.range.end().value; ++b)
      bytes[{w.file, b}][w.owner] = w.lock.exclusive;
  }
  void free(int file, Owner owner, Extent range) {
    for (uint64_t b = range.offset.value; b < std::min(range.end().value, kBytes); ++b)
      bytes[{file, b}].erase(owner);
  }
  Tickets go_on() {
    Tickets out;
    for (size_t i = 0; i < waits.size();) {
      if (conflicts(waits[i], i)) {
        ++i;
        continue;
      }
      take(waits[i]);
      out.push_back(waits[i].ticket);
      waits.erase(waits.begin() + static_cast<ptrdiff_t>(i));
      i = 0;
    }
    std::ranges::sort(out);
    return out;
  }
  // Everybody for whom a wait waits, and for whom those wait.
  bool reaches(const Wait& w, size_t before, Owner goal, std::set<Owner>& seen) const {
    std::set<Owner> next;
    for (uint64_t b = w.lock.range.offset.value; b < w.lock.range.end().value; ++b) {
      for (const auto& [owner, exclusive] : at(w.file, b))
        if (owner != w.owner && (exclusive || w.lock.exclusive)) next.insert(owner);
    }
    for (size_t i = 0; w.behind && i < before; ++i)
      if (hinders(waits[i], w)) next.insert(waits[i].owner);
    if (next.contains(goal)) return true;
    for (const Owner owner : next) {
      if (!seen.insert(owner).second) continue;
      for (size_t i = 0; i < waits.size(); ++i)
        if (waits[i].owner == owner && reaches(waits[i], i, goal, seen)) return true;
    }
    return false;
  }

  const std::map<Owner, bool>& at(int file, uint64_t b) const {
    static const std::map<Owner, bool> none;
    const auto found = bytes.find({file, b});
    return found == bytes.end() ? none : found->second;
  }
  std::map<std::pair<int, uint64_t>, std::map<Owner, bool>> bytes;
  std::vector<Wait> waits;
};

std::string name_of(int file) {
  return std::string(1, static_cast<char>('a' + file));
}

TEST(FileLocks, AgreesWithTheRulesTakenLiterally) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](uint64_t n) {
    return std::uniform_int_distribution<uint64_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 200; ++round) {
    FileLocks locks;
    Oracle oracle;
    for (int step = 0; step < 150; ++step) {
      const int file = static_cast<int>(below(2));
      const Owner owner{1 + below(3), below(2)};
      const uint64_t from = below(Oracle::kBytes);
      const Lock lock = range(below(2) == 0, from, 1 + below(Oracle::kBytes - from));
      Tickets granted, expected;
      const uint64_t what = below(10);
      if (what < 6) {
        const bool wait = below(3) != 0;
        const Oracle::Wait w{0, file, owner, lock, wait && !oracle.holds(owner)};
        auto out = locks.lock(name_of(file), owner, lock, wait);
        std::set<Owner> seen;
        if (!oracle.conflicts(w, oracle.waits.size())) {
          ASSERT_TRUE(out);
          ASSERT_EQ(out->state, State::granted);
          oracle.take(w);
          expected = oracle.go_on();
        } else if (!wait) {
          ASSERT_TRUE(out);
          ASSERT_EQ(out->state, State::refused);
        } else if (oracle.reaches(w, oracle.waits.size(), owner, seen)) {
          ASSERT_FALSE(out);
          ASSERT_EQ(out.error().code(), EDEADLK);
        } else {
          ASSERT_TRUE(out);
          ASSERT_EQ(out->state, State::waits);
          oracle.waits.push_back({out->ticket, file, owner, lock, w.behind});
        }
        if (out) granted = out->granted;
      } else if (what < 8) {
        granted = locks.unlock(name_of(file), owner, Kind::range, lock.range);
        oracle.free(file, owner, lock.range);
        expected = oracle.go_on();
      } else if (what == 8 && !oracle.waits.empty()) {
        const size_t i = below(oracle.waits.size());
        granted = locks.give_up(oracle.waits[i].ticket);
        oracle.waits.erase(oracle.waits.begin() + static_cast<ptrdiff_t>(i));
        expected = oracle.go_on();
      } else if (what == 9) {
        granted = locks.forget(owner.client);
        std::erase_if(oracle.waits, [&](const auto& w) { return w.owner.client == owner.client; });
        for (uint64_t name = 0; name < 2; ++name)
          for (int f = 0; f < 2; ++f) oracle.free(f, {owner.client, name}, ext(0, kMaxOffset));
        expected = oracle.go_on();
      }
      std::ranges::sort(granted);
      ASSERT_EQ(granted, expected) << "step " << step << " of round " << round << ", " << what;
      ASSERT_EQ(locks.waiting(), oracle.waits.size());
    }
    for (uint64_t client = 1; client <= 3; ++client) locks.forget(client);
    ASSERT_EQ(locks.held() + locks.waiting(), 0u);
  }
}

}  // namespace forebay::attr::file_locks_test
