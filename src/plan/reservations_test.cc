#include "plan/reservations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/testing.h"

namespace forebay::plan {
namespace {

using Mode = Reservations::Mode;
using Id = Reservations::Id;

Extents range(uint64_t offset, uint64_t length) {
  return Extents(Extent{Offset(offset), Length(length)});
}

// The rule taken literally: a list in order of arrival, every pair compared.
class LiteralRule {
 public:
  void add(Id id, Mode mode, Extents extents) { held_.push_back({id, mode, std::move(extents)}); }

  void release(Id id) {
    std::erase_if(held_, [&](const Held& h) { return h.id == id; });
  }

  std::vector<Id> running() const {
    std::vector<Id> ids;
    for (auto h = held_.begin(); h != held_.end(); ++h) {
      const bool blocked =
          std::any_of(held_.begin(), h, [&](const Held& e) { return conflict(e, *h); });
      if (!blocked) ids.push_back(h->id);
    }
    return ids;
  }

  size_t size() const { return held_.size(); }
  Id at(size_t i) const { return held_[i].id; }

 private:
  struct Held {
    Id id;
    Mode mode;
    Extents extents;
  };

  static bool conflict(const Held& a, const Held& b) {
    const auto either = [&](Mode m) { return a.mode == m || b.mode == m; };
    const bool waits = either(Mode::common) ? either(Mode::read) || either(Mode::write)
                                            : either(Mode::write) || either(Mode::whole);
    return waits && may_overlap(a.extents, b.extents);
  }

  std::vector<Held> held_;
};

std::vector<Id> newly(const std::vector<Id>& before, const std::vector<Id>& after) {
  std::vector<Id> fresh;
  for (const Id id : after) {
    if (std::find(before.begin(), before.end(), id) == before.end()) fresh.push_back(id);
  }
  return fresh;
}

Extents random_extents(std::mt19937_64& random, uint64_t universe) {
  const uint64_t offset = random() % universe, length = random() % 12;
  if (random() % 3 != 0) return range(offset, length);
  const auto stride = static_cast<int64_t>(length + 1 + random() % 10);
  return Extents::make({{Offset(offset), Length(length)}}, {{1 + random() % 6, stride}}).value();
}

TEST(Reservations, FollowTheRuleExactly) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 60; ++round) {
    const uint64_t universe = 10 + random() % 300, most = 3 + random() % 40;
    Reservations reservations;
    LiteralRule model;
    for (int i = 0; i < 500; ++i) {
      const std::vector<Id> before = model.running();
      if (model.size() == 0 || (model.size() < most && random() % 2 == 0)) {
        const Id id = random();
        const auto mode = static_cast<Mode>(random() % Reservations::kModes);
        const Extents extents = random_extents(random, universe);
        model.add(id, mode, extents);
        const bool runs = reservations.add(id, mode, extents);
        ASSERT_EQ(newly(before, model.running()), runs ? std::vector{id} : std::vector<Id>{});
      } else {
        const Id id = model.at(random() % model.size());  // running or waiting
        model.release(id);
        ASSERT_EQ(reservations.release(id), newly(before, model.running()));
      }
      ASSERT_EQ(reservations.size(), model.size());
      const std::vector<Id> now = model.running();
      for (size_t k = 0; k < model.size(); ++k) {
        const bool runs = std::find(now.begin(), now.end(), model.at(k)) != now.end();
        ASSERT_EQ(reservations.running(model.at(k)), runs);
      }
    }
  }
}

TEST(Reservations, ReadsShareAndWritesWaitInOrder) {
  Reservations r;
  EXPECT_TRUE(r.add(1, Mode::read, range(0, 100)));
  EXPECT_TRUE(r.add(2, Mode::read, range(50, 100)));
  EXPECT_FALSE(r.add(3, Mode::write, range(90, 20)));
  EXPECT_FALSE(r.add(4, Mode::read, range(100, 1))) << "a later read does not starve the write";
  EXPECT_TRUE(r.add(5, Mode::read, range(0, 90))) << "what does not conflict overtakes";
  EXPECT_TRUE(r.release(1).empty());
  EXPECT_EQ(r.release(2), std::vector<Id>{3});
  EXPECT_EQ(r.release(3), std::vector<Id>{4});
  EXPECT_TRUE(r.running(4));
  EXPECT_FALSE(r.running(3)) << "no longer held";
}

TEST(Reservations, WhatIsHeldInCommonIsWrittenAsAWhole) {
  Reservations r;
  EXPECT_TRUE(r.add(1, Mode::whole, range(0, 10)));
  EXPECT_TRUE(r.add(2, Mode::common, range(0, 1000)));
  EXPECT_TRUE(r.add(3, Mode::common, range(0, 1000)));
  EXPECT_TRUE(r.add(4, Mode::whole, range(20, 10)));
  EXPECT_FALSE(r.add(5, Mode::whole, range(5, 10))) << "wholes have an order";
  EXPECT_FALSE(r.add(6, Mode::read, range(500, 1)));
  EXPECT_FALSE(r.add(7, Mode::common, range(0, 1000))) << "what comes later does not starve a read";
  EXPECT_EQ(r.release(1), std::vector<Id>{5});
  EXPECT_TRUE(r.release(2).empty());
  EXPECT_EQ(r.release(3), std::vector<Id>{6});
  EXPECT_EQ(r.release(6), std::vector<Id>{7});
}

TEST(Reservations, OneThatGivesUpLetsThoseBehindItThrough) {
  Reservations r;
  EXPECT_TRUE(r.add(1, Mode::read, range(0, 10)));
  EXPECT_FALSE(r.add(2, Mode::write, range(5, 10)));
  EXPECT_FALSE(r.add(3, Mode::read, range(8, 10)));
  EXPECT_EQ(r.release(2), std::vector<Id>{3});
  EXPECT_TRUE(r.add(2, Mode::read, range(0, 10))) << "an id may be used again";
}

TEST(Reservations, InterleavedViewsRunTogether) {
  Reservations r;
  for (uint64_t rank = 0; rank < 8; ++rank) {
    Extents view =
        Extents::make({{Offset(rank * 64), Length(64)}}, {{1'000'000'000, 8 * 64}}).value();
    EXPECT_TRUE(r.add(rank, Mode::write, std::move(view)));
  }
}

TEST(Reservations, NothingConflictsWithNoBytes) {
  Reservations r;
  EXPECT_TRUE(r.add(1, Mode::write, range(0, 100)));
  EXPECT_TRUE(r.add(2, Mode::write, Extents()));
  EXPECT_TRUE(r.add(3, Mode::write, range(50, 0)));
  EXPECT_TRUE(r.release(1).empty());
  EXPECT_TRUE(r.release(2).empty());
  EXPECT_EQ(r.size(), 1u);
}

TEST(Reservations, ManyDisjointOnesCostLittleEach) {
  Reservations r;
  const uint64_t n = 100000;
  for (uint64_t i = 0; i < n; ++i) ASSERT_TRUE(r.add(i, Mode::write, range(i * 4096, 4096)));
  EXPECT_LT(r.nodes_visited() / n, 50u);
  const uint64_t before = r.nodes_visited();
  for (uint64_t i = 0; i < n; ++i) ASSERT_TRUE(r.release(i).empty());
  EXPECT_EQ(r.nodes_visited(), before) << "nobody waited, nothing to look for";
}

TEST(Reservations, AHotRangeIsAChain) {
  Reservations r;
  const uint64_t n = 2000;
  for (uint64_t i = 0; i < n; ++i) ASSERT_EQ(r.add(i, Mode::write, range(0, 10)), i == 0);
  for (uint64_t i = 0; i + 1 < n; ++i) ASSERT_EQ(r.release(i), std::vector<Id>{i + 1});
  EXPECT_LT(r.nodes_visited(), 2 * n * n) << "each is looked at again once";
}

TEST(ReservationsDeath, IdsAreUniqueAmongThoseHeld) {
  Reservations r;
  r.add(1, Mode::read, range(0, 1));
  EXPECT_DEATH(r.add(1, Mode::read, range(5, 1)), "already held");
  EXPECT_DEATH(r.release(2), "not held");
}

}  // namespace
}  // namespace forebay::plan
