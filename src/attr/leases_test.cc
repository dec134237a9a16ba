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
using Kind = Leases::Kind;

Time at(Duration d) {
  return Time{} + 1h + d;
}

TEST(Leases, AreSharedAndRecalledForAChangeByAnother) {
  Leases leases(5s);
  Number a = *leases.take("f", {1}, Kind::read, at(0s));
  const Number b = *leases.take("f", {2}, Kind::read, at(1s));
  EXPECT_NE(a, b);
  const Number again = *leases.take("f", {1}, Kind::read, at(1s));
  EXPECT_NE(again, a);
  EXPECT_FALSE(leases.give_back(1, a)) << "the new one is in its place";
  a = again;
  EXPECT_TRUE(leases.recall("g", {3}, at(1s)).until.empty());
  const auto own = leases.recall("f", {1}, at(2s));
  EXPECT_EQ(own.now, (std::vector<Leases::Held>{{2, b}})) << "not the changer's own";
  EXPECT_EQ(own.until, std::vector<Number>{b});
  EXPECT_EQ(own.at_most, at(6s));
  const auto both = leases.recall("f", {3}, at(2s));
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
  const Number a = *leases.take("f", {1}, Kind::read, at(0s));
  EXPECT_TRUE(leases.renew(1, a, at(4s)));
  EXPECT_FALSE(leases.recall("f", {2}, at(8s)).until.empty());
  EXPECT_FALSE(leases.renew(1, a, at(8s))) << "it is asked for";
  EXPECT_TRUE(leases.lapse("f", at(8999ms)).empty());
  EXPECT_EQ(leases.lapse("f", at(9s)), (std::vector<Leases::Held>{{1, a}}));
  const Number b = *leases.take("f", {1}, Kind::read, at(10s));
  EXPECT_NE(a, b);
  EXPECT_FALSE(leases.renew(1, b, at(15s))) << "too late";
  EXPECT_TRUE(leases.recall("f", {2}, at(15s)).until.empty());
  EXPECT_EQ(leases.held(), 0u);
  // Whoever recalls it next hears that somebody has waited in vain.
  const Number c = *leases.take("f", {1}, Kind::read, at(20s));
  EXPECT_EQ(leases.recall("f", {2}, at(21s)).until, std::vector<Number>{c});
  const auto later = leases.recall("f", {3}, at(25s));
  EXPECT_TRUE(later.until.empty());
  EXPECT_EQ(later.lapsed, (std::vector<Leases::Held>{{1, c}}));
}

TEST(Leases, LastNoLongerThanTheyMayButAsLongAsWasSaid) {
  Leases leases(5s);
  const Number a = *leases.take("f", {1}, Kind::read, at(0s), 3s);
  EXPECT_FALSE(leases.renew(1, a, at(3s))) << "it has run out";
  const Number b = *leases.take("f", {1}, Kind::read, at(4s));
  EXPECT_TRUE(leases.take("g", {1}, Kind::read, at(5s), 1s)) << "it was told until 9";
  EXPECT_TRUE(leases.renew(1, b, at(6s), 2s));
  EXPECT_EQ(leases.recall("g", {2}, at(7s)).at_most, at(9s));
  EXPECT_TRUE(leases.renew(1, b, at(8s), 2s));
  EXPECT_EQ(leases.recall("f", {2}, at(8s)).at_most, at(10s));
}

TEST(Leases, OfAClientThatIsAwayAreNotRenewedByItsReturn) {
  Leases leases(5s);
  const Number a = *leases.take("f", {1}, Kind::read, at(0s));
  leases.abandon(1);
  const Number b = *leases.take("f", {1}, Kind::read, at(1s));
  EXPECT_NE(a, b);
  const auto recalled = leases.recall("f", {2}, at(2s));
  EXPECT_EQ(recalled.now, (std::vector<Leases::Held>{{1, b}}));
  EXPECT_EQ(recalled.until.size(), 2u);
  leases.lapse("f", at(5s));
  EXPECT_EQ(leases.held(), 1u);
}

TEST(Leases, AreLimited) {
  Leases leases(5s, {3, 2});
  EXPECT_TRUE(leases.take("a", {1}, Kind::read, at(0s)));
  EXPECT_TRUE(leases.take("b", {1}, Kind::read, at(0s)));
  EXPECT_EQ(leases.take("c", {1}, Kind::read, at(0s)).error().code(), ENOLCK);
  EXPECT_TRUE(leases.take("a", {2}, Kind::read, at(0s)));
  EXPECT_EQ(leases.take("a", {3}, Kind::read, at(0s)).error().code(), ENOLCK);
  EXPECT_TRUE(leases.take("b", {1}, Kind::read, at(1s))) << "it has that one";
}

TEST(Leases, ToWriteAreAlone) {
  Leases leases(5s);
  const Number reader = *leases.take("f", {1}, Kind::read, at(0s));
  EXPECT_EQ(leases.take("f", {2}, Kind::write, at(0s)).error().code(), EAGAIN);
  const Number writer = *leases.take("f", {1}, Kind::write, at(0s));
  EXPECT_FALSE(leases.holds(1, reader)) << "the new one is in its place";
  EXPECT_EQ(leases.held_to_write(), 1u);
  EXPECT_EQ(leases.take("f", {2}, Kind::read, at(0s)).error().code(), EAGAIN);
  EXPECT_EQ(leases.take("f", {1, 7}, Kind::read, at(0s)).error().code(), EAGAIN)
      << "by another name";
  EXPECT_TRUE(leases.take("g", {2}, Kind::write, at(0s)));
  EXPECT_TRUE(leases.writes(1, writer, "f"));
  EXPECT_FALSE(leases.writes(1, writer, "g"));
  EXPECT_FALSE(leases.writes(2, writer, "f"));
  EXPECT_TRUE(leases.recall_writer("f", {1}, at(1s)).until.empty()) << "its own";
  const auto recalled = leases.recall_writer("f", {2}, at(1s));
  EXPECT_EQ(recalled.now, (std::vector<Leases::Held>{{1, writer}}));
  EXPECT_EQ(recalled.at_most, at(5s));
  EXPECT_TRUE(leases.recall_writer("f", {3}, at(1s)).now.empty()) << "told once";
  EXPECT_EQ(leases.take("f", {1}, Kind::write, at(1s)).error().code(), EAGAIN) << "asked for";
  EXPECT_TRUE(leases.writes(1, writer, "f")) << "what it has it may write, until then";
  EXPECT_EQ(leases.recall_writer("f", {2}, at(5s)).lapsed,
            (std::vector<Leases::Held>{{1, writer}}));
  EXPECT_FALSE(leases.writes(1, writer, "f"));
  EXPECT_TRUE(leases.recall_writer("f", {2}, at(5s)).until.empty());
}

TEST(Leases, ToWriteOutliveTheConnection) {
  Leases leases(5s);
  const Number writer = *leases.take("f", {1}, Kind::write, at(0s));
  const Number reader = *leases.take("g", {1}, Kind::read, at(0s));
  EXPECT_EQ(leases.forget_copies(1), std::vector<Number>{reader});
  EXPECT_TRUE(leases.writes(1, writer, "f"));
  EXPECT_FALSE(leases.renew(1, writer, at(1s)));
  EXPECT_TRUE(leases.lapse(uint64_t{1}, at(4s)).empty());
  EXPECT_EQ(leases.lapse(uint64_t{1}, at(5s)), (std::vector<Leases::Held>{{1, writer}}));
  EXPECT_EQ(leases.held(), 0u);
}

TEST(Leases, OfOneFileByTwoNamesAreTwo) {
  Leases leases(5s);
  const Number a = *leases.take("f", {1, 10}, Kind::read, at(0s));
  const Number b = *leases.take("f", {1, 20}, Kind::read, at(0s));
  EXPECT_TRUE(leases.holds(1, a));
  EXPECT_EQ(leases.recall("f", {1, 20}, at(1s)).now, (std::vector<Leases::Held>{{1, a}}));
  EXPECT_TRUE(leases.give_back(1, a));
  EXPECT_TRUE(leases.holds(1, b));
}

// Clients that believe what they are told, by messages that take their time, keep copies and what
// they have written by the rules of the header. A change that completes leaves no older copy that
// anybody may use; whoever looks sees all that was written before, but for what came too late; and
// what came too late is refused.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ = now_ + std::chrono::milliseconds(below(400));
      deliver();
      step();
      settle_looks();
      settle_changes();
    }
  }

 private:
  static constexpr Duration kTerm = 2s;
  static constexpr uint64_t kClients = 4, kFiles = 2;
  struct Copy {  // of a client
    Number lease = 0;
    uint64_t version = 0;
    Kind kind = Kind::read;
    bool dirty = false;
  };
  struct Client {
    std::map<std::string, Copy> copies;
    Time until{};
    std::deque<std::pair<Time, Number>> mail;  // recalls on their way, in order
    bool deaf = false;                         // it does nothing any more
  };
  struct File {
    uint64_t last = 0;       // version that was given out
    uint64_t stored = 0;     // in the file
    uint64_t completed = 0;  // the last one that must not be lost any more, wherever it is
  };
  struct Change {
    std::string file;
    uint64_t by, version;
    std::vector<Number> waits;
    Time at_most;
  };
  struct Look {
    std::string file;
    uint64_t by, least;
    Number wait;
    Time at_most;
  };

  uint64_t below(uint64_t n) { return random_() % n; }
  bool held(Number lease) const {
    for (uint64_t id = 0; id < kClients; ++id)
      if (leases_.holds(id, lease)) return true;
    return false;
  }
  void send(const std::vector<Leases::Held>& recalls) {
    for (const auto& told : recalls) {
      Client& other = clients_[told.client];
      Time when = now_ + std::chrono::milliseconds(below(1500));
      if (!other.mail.empty()) when = std::max(when, other.mail.back().first);
      other.mail.emplace_back(when, told.lease);
    }
  }

  // It writes what it has kept, if it still may.
  void flush(uint64_t id, const std::string& file, Copy& copy) {
    if (!std::exchange(copy.dirty, false)) return;
    File& f = files_[file];
    if (leases_.writes(id, copy.lease, file)) {
      EXPECT_GT(copy.version, f.stored) << "what came too late was written over what is newer";
      f.stored = copy.version;
    } else {
      f.completed = std::min(f.completed, f.stored);  // lost, and its writer knows
    }
  }
  void drop(uint64_t id, Number lease) {
    Client& c = clients_[id];
    for (auto& [file, copy] : c.copies)
      if (copy.lease == lease) flush(id, file, copy);
    std::erase_if(c.copies, [&](const auto& one) { return one.second.lease == lease; });
  }
  void drop_all(uint64_t id) {
    for (auto& [file, copy] : std::exchange(clients_[id].copies, {})) {
      flush(id, file, copy);
      leases_.give_back(id, copy.lease);
    }
  }

  // What is on its way arrives before anything that is said later.
  void hear(uint64_t id, bool all) {
    Client& c = clients_[id];
    while (!c.mail.empty() && (all || c.mail.front().first <= now_)) {
      const Number lease = c.mail.front().second;
      c.mail.pop_front();
      drop(id, lease);
      leases_.give_back(id, lease);
    }
  }
  void deliver() {
    for (uint64_t id = 0; id < kClients; ++id)
      if (!clients_[id].deaf) hear(id, false);
  }

  void take(uint64_t id, const std::string& file, Kind kind) {
    Client& c = clients_[id];
    if (c.until <= now_) drop_all(id);
    if (const auto own = c.copies.find(file); own != c.copies.end()) flush(id, file, own->second);
    const auto lease = leases_.take(file, {id}, kind, now_);
    hear(id, true);  // the recalls before the answer
    if (!lease) {
      EXPECT_EQ(lease.error().code(), EAGAIN);
      return;
    }
    c.until = now_ + kTerm;
    c.copies[file] = {*lease, files_[file].stored, kind, false};
    if (kind == Kind::read) return;
    for (uint64_t other = 0; other < kClients; ++other) {
      const auto copy = clients_[other].copies.find(file);
      if (other == id || copy == clients_[other].copies.end()) continue;
      EXPECT_TRUE(now_ >= clients_[other].until || !leases_.holds(other, copy->second.lease) ||
                  lost_.contains(other))
          << "not alone";
    }
  }

  // By the short way: under its own lease, or when nobody else writes.
  void write(uint64_t id, const std::string& file) {
    Client& c = clients_[id];
    File& f = files_[file];
    if (c.until <= now_) drop_all(id);
    const auto own = c.copies.find(file);
    if (own != c.copies.end() && own->second.kind == Kind::write && now_ < c.until) {
      own->second.version = f.completed = ++f.last;
      own->second.dirty = true;
      return;
    }
    if (look(id, file)) return;
    const uint64_t version = f.stored = f.completed = ++f.last;
    if (own != c.copies.end()) own->second.version = version;
    auto recalled = leases_.recall(file, {id}, now_);
    send(recalled.now);
    changes_.push_back({file, id, version, std::move(recalled.until), recalled.at_most});
  }

  // True: it waits.
  bool look(uint64_t id, const std::string& file) {
    const auto recalled = leases_.recall_writer(file, {id}, now_);
    send(recalled.now);
    Look look{file, id, files_[file].completed, 0, recalled.at_most};
    if (recalled.until.empty()) return see(look), false;
    look.wait = recalled.until.front();
    looks_.push_back(look);
    return true;
  }
  // Whoever holds the lease sees what it has itself.
  void see(const Look& look) {
    const File& f = files_[look.file];
    if (leases_.written_by(look.file, {look.by})) return;
    forgive(look.file);
    EXPECT_GE(f.stored, std::min(look.least, f.completed)) << "not what was written before";
  }
  // What a holder has that had its time is lost.
  void forgive(const std::string& file) {
    for (uint64_t id = 0; id < kClients; ++id) {
      const auto copy = clients_[id].copies.find(file);
      if (copy == clients_[id].copies.end() || !copy->second.dirty) continue;
      if (leases_.holds(id, copy->second.lease)) {
        ADD_FAILURE() << "somebody looks though a lease is out";
      }
      files_[file].completed = std::min(files_[file].completed, files_[file].stored);
    }
  }

  void step() {
    const uint64_t id = below(kClients);
    Client& c = clients_[id];
    const std::string file(1, static_cast<char>('a' + below(kFiles)));
    const uint64_t what = below(16);
    if (c.deaf && what != 9) return;
    if (what < 3) {
      take(id, file, Kind::read);
    } else if (what < 5) {
      take(id, file, Kind::write);
    } else if (what < 8 || what >= 14) {
      write(id, file);
    } else if (what == 8 && !c.copies.empty()) {
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
      if (below(2) == 0) drop_all(id);
      c.deaf = !c.copies.empty();
      if (c.deaf) lost_.insert(id);
    } else if (what == 11) {  // it dies
      for (auto& [name, copy] : c.copies)
        if (copy.dirty)
          files_[name].completed = std::min(files_[name].completed, files_[name].stored);
      leases_.forget(id);
      c = Client();
    } else if (what < 14) {
      look(id, file);
    }
    // Whoever comes back from a lost connection has noticed.
    if (!clients_[id].deaf && lost_.erase(id)) drop_all(id);
  }

  void settle_looks() {
    std::erase_if(looks_, [&](const Look& look) {
      leases_.lapse(look.file, now_);
      if (held(look.wait)) {
        EXPECT_LT(now_, look.at_most) << "it is not gone when it should be";
        return false;
      }
      // Another one may have been taken since: that writer was not before this look.
      const auto recalled = leases_.recall_writer(look.file, {look.by}, now_);
      send(recalled.now);
      if (recalled.until.empty()) see(look);
      return true;
    });
  }

  void settle_changes() {
    std::erase_if(changes_, [&](Change& change) {
      leases_.lapse(change.file, now_);
      const bool waits = std::ranges::any_of(change.waits, [&](Number n) { return held(n); });
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
  std::map<std::string, File> files_;
  std::vector<Change> changes_;
  std::vector<Look> looks_;
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
