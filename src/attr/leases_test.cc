#include "attr/leases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>

#include "core/testing.h"

namespace forebay::attr::leases_test {

using namespace std::chrono_literals;
using Number = Leases::Number;

Time at(Duration d) {
  return Time{} + 1h + d;
}

TEST(Leases, AreSharedAndRecalledForAChangeByAnother) {
  Leases leases(5s);
  Number a = *leases.take("f", 1, at(0s));
  const Number b = *leases.take("f", 2, at(1s));
  EXPECT_NE(a, b);
  const Number again = *leases.take("f", 1, at(1s));
  EXPECT_NE(again, a);
  EXPECT_FALSE(leases.give_back(1, a)) << "the new one is in its place";
  a = again;
  EXPECT_TRUE(leases.recall("g", 3, at(1s)).until.empty());
  const auto own = leases.recall("f", 1, at(2s));
  EXPECT_EQ(own.now, (std::vector<Leases::Held>{{2, b}})) << "not the changer's own";
  EXPECT_EQ(own.until, std::vector<Number>{b});
  EXPECT_EQ(own.at_most, at(6s));
  const auto both = leases.recall("f", 3, at(2s));
  EXPECT_EQ(both.now, (std::vector<Leases::Held>{{1, a}})) << "told once";
  EXPECT_EQ(both.until.size(), 2u) << "but waited for by each";
  EXPECT_FALSE(leases.give_back(1, b)) << "another's";
  EXPECT_TRUE(leases.give_back(2, b));
  EXPECT_FALSE(leases.give_back(2, b));
  EXPECT_EQ(leases.forget(1), std::vector<Number>{a});
  EXPECT_EQ(leases.held(), 0u);
}

TEST(Leases, RunOutUnlessRenewed) {
  Leases leases(5s);
  const Number a = *leases.take("f", 1, at(0s));
  EXPECT_TRUE(leases.renew(1, a, at(4s)));
  EXPECT_FALSE(leases.recall("f", 2, at(8s)).until.empty());
  EXPECT_FALSE(leases.renew(1, a, at(8s))) << "it is asked for";
  EXPECT_TRUE(leases.lapse("f", at(8999ms)).empty());
  EXPECT_EQ(leases.lapse("f", at(9s)), (std::vector<Leases::Held>{{1, a}}));
  const Number b = *leases.take("f", 1, at(10s));
  EXPECT_NE(a, b);
  EXPECT_FALSE(leases.renew(1, b, at(15s))) << "too late";
  EXPECT_TRUE(leases.recall("f", 2, at(15s)).until.empty());
  EXPECT_EQ(leases.held(), 0u);
}

TEST(Leases, OfAClientThatIsAwayAreNotRenewedByItsReturn) {
  Leases leases(5s);
  const Number a = *leases.take("f", 1, at(0s));
  leases.abandon(1);
  const Number b = *leases.take("f", 1, at(1s));
  EXPECT_NE(a, b);
  const auto recalled = leases.recall("f", 2, at(2s));
  EXPECT_EQ(recalled.now, (std::vector<Leases::Held>{{1, b}}));
  EXPECT_EQ(recalled.until.size(), 2u);
  leases.lapse("f", at(5s));
  EXPECT_EQ(leases.held(), 1u);
}

TEST(Leases, AreLimited) {
  Leases leases(5s, {3, 2});
  EXPECT_TRUE(leases.take("a", 1, at(0s)));
  EXPECT_TRUE(leases.take("b", 1, at(0s)));
  EXPECT_EQ(leases.take("c", 1, at(0s)).error().code(), ENOLCK);
  EXPECT_TRUE(leases.take("a", 2, at(0s)));
  EXPECT_EQ(leases.take("a", 3, at(0s)).error().code(), ENOLCK);
  EXPECT_TRUE(leases.take("b", 1, at(1s))) << "it has that one";
}

// Clients that believe what they are told, by messages that take their time, keep copies by the
// rules of the header. A change that completes leaves no older copy that anybody may use.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ = now_ + std::chrono::milliseconds(below(400));
      deliver();
      step();
      settle_changes();
    }
  }

 private:
  static constexpr Duration kTerm = 2s;
  static constexpr uint64_t kClients = 4, kFiles = 2;
  struct Copy {  // of a client
    Number lease = 0;
    uint64_t version = 0;
  };
  struct Client {
    std::map<std::string, Copy> copies;
    Time until{};
    std::deque<std::pair<Time, Number>> mail;  // recalls on their way, in order
    bool deaf = false;                         // it does nothing any more
  };
  struct Change {
    std::string file;
    uint64_t by, version;
    std::vector<Number> waits;
    Time at_most;
  };

  uint64_t below(uint64_t n) { return random_() % n; }

  void drop(Client& c, Number lease) {
    std::erase_if(c.copies, [&](const auto& one) { return one.second.lease == lease; });
  }

  // What is on its way arrives before anything that is said later.
  void hear(uint64_t id, bool all) {
    Client& c = clients_[id];
    while (!c.mail.empty() && (all || c.mail.front().first <= now_)) {
      const Number lease = c.mail.front().second;
      c.mail.pop_front();
      drop(c, lease);
      leases_.give_back(id, lease);
    }
  }
  void deliver() {
    for (uint64_t id = 0; id < kClients; ++id)
      if (!clients_[id].deaf) hear(id, false);
  }

  void step() {
    const uint64_t id = below(kClients);
    Client& c = clients_[id];
    const std::string file(1, static_cast<char>('a' + below(kFiles)));
    const uint64_t what = below(12);
    if (what < 4) {
      if (c.deaf) return;
      const auto lease = leases_.take(file, id, now_);
      hear(id, true);  // the recalls before the answer
      ASSERT_TRUE(lease);
      if (c.until <= now_) c.copies.clear();
      c.until = now_ + kTerm;
      Copy& copy = c.copies[file];
      if (copy.lease != *lease) copy = {*lease, versions_[file]};
    } else if (what < 8) {
      if (c.deaf) return;
      const uint64_t version = ++versions_[file];
      if (const auto own = c.copies.find(file); own != c.copies.end())
        own->second.version = version;
      auto recalled = leases_.recall(file, id, now_);
      for (const auto& told : recalled.now) {
        Client& other = clients_[told.client];
        Time when = now_ + std::chrono::milliseconds(below(1500));
        if (!other.mail.empty()) when = std::max(when, other.mail.back().first);
        other.mail.emplace_back(when, told.lease);
      }
      changes_.push_back({file, id, version, std::move(recalled.until), recalled.at_most});
    } else if (what == 8 && !c.copies.empty() && !c.deaf) {
      const Number lease = c.copies.begin()->second.lease;
      if (leases_.renew(id, lease, now_)) {
        hear(id, true);
        c.until = now_ + kTerm;
      }
    } else if (what == 9) {
      c.deaf = !c.deaf;
    } else if (what == 10) {  // the connection breaks, and it notices late or never
      leases_.abandon(id);
      c.mail.clear();
      if (below(2) == 0) c.copies.clear();
      c.deaf = !c.copies.empty();
      if (c.deaf) lost_.insert(id);
    } else if (what == 11) {
      leases_.forget(id);
      c = Client();
    }
    // Whoever comes back from a lost connection has noticed.
    if (!clients_[id].deaf && lost_.erase(id)) clients_[id].copies.clear();
  }

  void settle_changes() {
    std::erase_if(changes_, [&](Change& change) {
      leases_.lapse(change.file, now_);
      const bool waits = std::ranges::any_of(change.waits, [&](Number n) {
        for (uint64_t id = 0; id < kClients; ++id)
          if (leases_.holds(id, n)) return true;
        return false;
      });
      if (waits && now_ < change.at_most) return false;
      EXPECT_FALSE(waits) << "it is not gone when it should be";
      for (uint64_t id = 0; id < kClients; ++id) {
        const Client& c = clients_[id];
        const auto copy = c.copies.find(change.file);
        if (copy == c.copies.end() || now_ >= c.until || id == change.by) continue;
        EXPECT_GE(copy->second.version, change.version) << "an old copy of client " << id;
      }
      return true;
    });
  }
  std::mt19937_64 random_;
  Time now_ = at(0s);
  Leases leases_{kTerm};
  Client clients_[kClients];
  std::map<std::string, uint64_t> versions_;
  std::vector<Change> changes_;
  std::set<uint64_t> lost_;
};

TEST(Leases, LeaveNoOldCopyWhenAChangeCompletes) {
  const uint64_t seed = test_seed();
  for (uint64_t round = 0; round < 50; ++round) {
    SCOPED_TRACE(std::to_string(seed) + " + " + std::to_string(round));
    History history(seed + round);
    history.run(300);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace forebay::attr::leases_test
