#include "attr/lock_circles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "core/testing.h"

namespace forebay::attr::lock_circles_test {

LockOwner owner(uint64_t name) {
  return {0, 0, name};
}
WaitsFor edge(uint64_t waiter, uint64_t holder, uint64_t ticket = 1, uint64_t since = 0) {
  return {owner(waiter), owner(holder), 1, 7, ticket, 100 * waiter + holder, since};
}

TEST(LockCircles, NobodyWaits) {
  CircleSearch none({});
  EXPECT_TRUE(none.take_questions().empty());
  CircleSearch search({edge(1, 2), edge(1, 3)});
  EXPECT_EQ(search.take_questions(), (std::vector{owner(2), owner(3)}));
  EXPECT_TRUE(search.take_questions().empty()) << "each is asked about once";
  EXPECT_FALSE(search.circle());
}

TEST(LockCircles, TheWayBackIsTheCircle) {
  CircleSearch search({edge(1, 2), edge(1, 3)});
  search.take_questions();
  search.add(edge(3, 4));
  search.add(edge(2, 3)) /* known already */;
  search.add(edge(9, 1)) /* nobody asked about 9 */;
  EXPECT_FALSE(search.circle());
  EXPECT_EQ(search.take_questions(), std::vector{owner(4)});
  search.add(edge(4, 1));
  EXPECT_EQ(search.circle(), (std::vector{edge(1, 3), edge(3, 4), edge(4, 1)}));
  EXPECT_TRUE(search.take_questions().empty());
}

TEST(LockCircles, AnOwnerOfOneServerIsNotAnothersOfThatName) {
  WaitsFor first = edge(1, 2), second = edge(2, 1);
  first.waiter.place = second.holder.place = 1;
  first.holder.place = 1;
  CircleSearch search({first});
  search.take_questions();
  search.add(second);
  EXPECT_FALSE(search.circle()) << "it is of all servers";
  second.waiter.place = 1;
  search.add(second);
  EXPECT_TRUE(search.circle());
}

TEST(LockCircles, AllChooseTheSameToBeRefused) {
  std::vector circle = {edge(1, 2, 5, 10), edge(2, 3, 6, 30), edge(3, 1, 7, 20)};
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(last_comer(circle).waiter, owner(2));
    std::rotate(circle.begin(), circle.begin() + 1, circle.end());
  }
  circle[0].since = circle[1].since = circle[2].since = 30;
  EXPECT_EQ(last_comer(circle).ticket, 7u);
}

TEST(LockCircles, BytesAndBack) {
  const std::vector owners = {owner(1), LockOwner{2, 3, UINT64_MAX}};
  EXPECT_EQ(unpack_owners(pack(owners)), owners);
  EXPECT_EQ(pack(owners).size(), 2 * kOwnerBytes);
  const std::vector edges = {edge(1, 2, 3, 4), edge(5, 6, 7, 8)};
  EXPECT_EQ(unpack_edges(pack(edges)), edges);
  EXPECT_EQ(pack(edges).size(), 2 * kEdgeBytes);
  EXPECT_FALSE(unpack_owners(pack(owners).substr(1)));
  EXPECT_FALSE(unpack_edges(pack(edges).substr(1)));
  EXPECT_TRUE(unpack_edges("")->empty());
}

// Of random graphs, by asking for each owner's edges: a circle is found where a simple search says
// that there is one, and it is one.
TEST(LockCircles, FindsWhatThereIsAndNothingElse) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 2000; ++round) {
    const uint64_t owners = 2 + random() % 8;
    std::vector<std::vector<WaitsFor>> graph(owners);
    for (uint64_t i = 0; i < random() % (2 * owners); ++i) {
      const uint64_t waiter = random() % owners, holder = random() % owners;
      if (waiter != holder) graph[waiter].push_back(edge(waiter, holder));
    }
    std::set<uint64_t> from_first;
    const auto walk = [&](auto&& self, uint64_t at) -> void {
      for (const WaitsFor& e : graph[at]) {
        if (from_first.insert(e.holder.name).second) self(self, e.holder.name);
      }
    };
    walk(walk, 0);
    CircleSearch search(graph[0]);
    for (auto asked = search.take_questions(); !asked.empty(); asked = search.take_questions()) {
      for (const LockOwner& one : asked) {
        for (const WaitsFor& e : graph[one.name]) search.add(e);
      }
    }
    const auto circle = search.circle();
    ASSERT_EQ(circle.has_value(), from_first.contains(0));
    if (!circle) continue;
    ASSERT_EQ(circle->front().waiter, owner(0));
    for (size_t i = 0; i < circle->size(); ++i) {
      ASSERT_EQ((*circle)[i].holder, (*circle)[(i + 1) % circle->size()].waiter);
    }
  }
}

}  // namespace forebay::attr::lock_circles_test
