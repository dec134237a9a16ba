#include "attr/range_locks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/testing.h"

namespace forebay::attr {
namespace {

using Ticket = RangeLocks::Ticket;
using Tickets = std::vector<Ticket>;

Extents range(uint64_t offset, uint64_t length) {
  return Extents(ext(offset, length));
}

Extents ranges(std::vector<Extent> list) {
  return Extents::make(std::move(list)).value();
}

// The rule taken literally, byte by byte: requests in order of arrival, each a set of flags.
class Oracle {
 public:
  static constexpr uint64_t kBytes = 256;

  void lock(Ticket ticket, LockMode mode, const Extents& extents) {
    Request request{ticket, mode, std::vector<bool>(kBytes)};
    for (ExtentCursor c(extents); !c.done(); c.advance(c.current().length)) {
      const Extent piece = c.current();
      for (uint64_t i = 0; i < piece.length.value; ++i)
        request.bytes[piece.offset.value + i] = true;
    }
    requests_.push_back(std::move(request));
  }
  void unlock(Ticket ticket) {
    std::erase_if(requests_, [&](const Request& r) { return r.ticket == ticket; });
  }
  void forget(RangeLocks::Owner owner) {
    std::erase_if(requests_, [&](const Request& r) { return r.ticket.owner == owner; });
  }

  bool has(Ticket ticket) const {
    return std::any_of(requests_.begin(), requests_.end(),
                       [&](const Request& r) { return r.ticket == ticket; });
  }
  Tickets held() const {
    Tickets out;
    for (auto r = requests_.begin(); r != requests_.end(); ++r) {
      const bool free =
          std::none_of(requests_.begin(), r, [&](const Request& e) { return conflict(e, *r); });
      if (free) out.push_back(r->ticket);
    }
    return out;
  }
  size_t size() const { return requests_.size(); }
  Ticket at(size_t i) const { return requests_[i].ticket; }

 private:
  struct Request {
    Ticket ticket;
    LockMode mode;
    std::vector<bool> bytes;
  };
  static bool conflict(const Request& a, const Request& b) {
    if (a.mode == LockMode::shared && b.mode == LockMode::shared) return false;
    for (uint64_t i = 0; i < kBytes; ++i) {
      if (a.bytes[i] && b.bytes[i]) return true;
    }
    return false;
  }

  std::vector<Request> requests_;
};

Tickets newly(const Tickets& before, const Tickets& after) {
  Tickets out;
  for (const Ticket& t : after) {
    if (std::find(before.begin(), before.end(), t) == before.end()) out.push_back(t);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Tickets sorted(Tickets tickets) {
  std::sort(tickets.begin(), tickets.end());
  return tickets;
}

Extents random_ranges(std::mt19937_64& random) {
  std::vector<Extent> list;
  for (uint64_t n = random() % 5; n > 0; --n) {
    list.push_back(ext(random() % (Oracle::kBytes - 20), random() % 20));
  }
  return ranges(std::move(list));
}

TEST(RangeLocks, FollowTheRuleExactly) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 40; ++round) {
    RangeLocks locks;
    Oracle oracle;
    const uint64_t owners = 1 + random() % 8, most = 3 + random() % 30;
    for (int i = 0; i < 400; ++i) {
      const Tickets before = oracle.held();
      const Ticket ticket{random() % owners, random() % 64};
      const uint64_t dice = random() % 20;
      if (dice == 0) {
        oracle.forget(ticket.owner);
        ASSERT_EQ(sorted(locks.forget(ticket.owner)), newly(before, oracle.held()));
      } else if (oracle.size() == 0 || (oracle.size() < most && dice < 11)) {
        const LockMode mode = random() % 2 ? LockMode::shared : LockMode::exclusive;
        const Extents extents = random_ranges(random);
        if (oracle.has(ticket)) {
          ASSERT_EQ(locks.lock(ticket, mode, extents).error().code(), EEXIST);
          continue;
        }
        oracle.lock(ticket, mode, extents);
        const bool now = locks.lock(ticket, mode, extents).value();
        ASSERT_EQ(now ? Tickets{ticket} : Tickets{}, newly(before, oracle.held()));
      } else {
        const Ticket known = oracle.at(random() % oracle.size());
        oracle.unlock(known);
        ASSERT_EQ(sorted(locks.unlock(known).value()), newly(before, oracle.held()));
      }
      ASSERT_EQ(locks.size(), oracle.size());
      const Tickets now = oracle.held();
      for (size_t k = 0; k < oracle.size(); ++k) {
        const bool held = std::find(now.begin(), now.end(), oracle.at(k)) != now.end();
        ASSERT_EQ(locks.held(oracle.at(k)), held);
      }
    }
  }
}

TEST(RangeLocks, AllRangesOfALockComeTogether) {
  RangeLocks locks;
  ASSERT_TRUE(locks.lock({1, 0}, LockMode::exclusive, range(0, 10)).value());
  ASSERT_FALSE(locks.lock({2, 0}, LockMode::exclusive, ranges({ext(5, 10), ext(100, 10)})).value());
  EXPECT_FALSE(locks.lock({3, 0}, LockMode::exclusive, range(105, 1)).value())
      << "not overtaken, though nobody holds that range yet";
  EXPECT_TRUE(locks.lock({4, 0}, LockMode::exclusive, range(20, 10)).value()) << "in the gap";
  EXPECT_EQ(locks.unlock({1, 0}).value(), (Tickets{{2, 0}}));
  EXPECT_EQ(locks.unlock({2, 0}).value(), (Tickets{{3, 0}}));
}

TEST(RangeLocks, ReadersDoNotStarveAWriter) {
  RangeLocks locks;
  ASSERT_TRUE(locks.lock({1, 0}, LockMode::shared, range(0, 10)).value());
  ASSERT_FALSE(locks.lock({2, 0}, LockMode::exclusive, range(0, 10)).value());
  for (uint64_t reader = 3; reader < 10; ++reader) {
    ASSERT_FALSE(locks.lock({reader, 0}, LockMode::shared, range(0, 10)).value());
  }
  EXPECT_EQ(locks.unlock({1, 0}).value(), (Tickets{{2, 0}}));
  EXPECT_EQ(locks.unlock({2, 0}).value().size(), 7u) << "all readers at once";
}

TEST(RangeLocks, AnOwnerThatIsGoneLeavesNothing) {
  RangeLocks locks;
  ASSERT_TRUE(locks.lock({1, 0}, LockMode::exclusive, range(0, 10)).value());
  ASSERT_TRUE(locks.lock({1, 1}, LockMode::exclusive, range(50, 10)).value());
  ASSERT_FALSE(locks.lock({1, 2}, LockMode::exclusive, range(5, 50)).value());
  ASSERT_FALSE(locks.lock({2, 0}, LockMode::exclusive, range(0, 1)).value());
  ASSERT_FALSE(locks.lock({3, 0}, LockMode::exclusive, range(20, 1)).value());
  EXPECT_EQ(sorted(locks.forget(1)), (Tickets{{2, 0}, {3, 0}}));
  EXPECT_TRUE(locks.forget(1).empty()) << "forgotten already";
  EXPECT_EQ(locks.size(), 2u);
}

TEST(RangeLocks, AreBounded) {
  RangeLocks locks({.in_all = 3, .per_owner = 2});
  ASSERT_TRUE(locks.lock({1, 0}, LockMode::shared, range(0, 1)));
  ASSERT_TRUE(locks.lock({1, 1}, LockMode::shared, range(0, 1)));
  EXPECT_EQ(locks.lock({1, 2}, LockMode::shared, range(0, 1)).error().code(), ENOLCK);
  ASSERT_TRUE(locks.lock({2, 0}, LockMode::shared, range(0, 1)));
  EXPECT_EQ(locks.lock({2, 1}, LockMode::shared, range(0, 1)).error().code(), ENOLCK);
  EXPECT_EQ(locks.unlock({3, 0}).error().code(), ENOENT);
  EXPECT_EQ(locks.unlock({1, 7}).error().code(), ENOENT);
  ASSERT_TRUE(locks.unlock({1, 0}));
  EXPECT_TRUE(locks.lock({2, 1}, LockMode::shared, range(0, 1)));
}

TEST(RangeLocks, ManyHeldOnesCostLittleEach) {
  RangeLocks locks;
  const uint64_t n = 50000;
  for (uint64_t i = 0; i < n; ++i) {
    ASSERT_TRUE(locks.lock({i, 0}, LockMode::exclusive, range(i * 4096, 4096)).value());
  }
  EXPECT_LT(locks.nodes_visited() / n, 50u);
}

}  // namespace
}  // namespace forebay::attr
