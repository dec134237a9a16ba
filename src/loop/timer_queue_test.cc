#include "loop/timer_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/testing.h"

namespace forebay {
namespace {

Time at(int64_t ns) {
  return Time{Duration(ns)};
}

TEST(TimerQueue, RunsInOrderOfDueTimeThenTie) {
  TimerQueue queue;
  std::string order;
  queue.add(at(20), 0, [&] { order += 'd'; });
  queue.add(at(10), 2, [&] { order += 'c'; });
  queue.add(at(10), 1, [&] { order += 'b'; });
  queue.add(at(5), 9, [&] { order += 'a'; });
  EXPECT_EQ(queue.next_due(), at(5));
  while (Task task = queue.pop_due(at(10))) task();
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(queue.next_due(), at(20));
  EXPECT_EQ(queue.size(), 1u);
}

TEST(TimerQueue, CancelDestroysTheTaskAndIsHarmlessTwice) {
  TimerQueue queue;
  auto held = std::make_shared<int>(1);
  const auto id = queue.add(at(1), 0, [held] {});
  EXPECT_EQ(held.use_count(), 2);
  queue.cancel(id);
  EXPECT_EQ(held.use_count(), 1);
  queue.cancel(id);
  const auto other = queue.add(at(1), 0, [held] {});
  EXPECT_NE(other, id);
  queue.cancel(id);  // the slot is used anew, the id is not
  EXPECT_EQ(queue.size(), 1u);
}

TEST(TimerQueue, AgreesWithAMapOnRandomInput) {
  std::mt19937_64 random(test_seed());
  TimerQueue queue;
  std::map<std::pair<Time, uint64_t>, Loop::TimerId> model;
  std::vector<std::pair<std::pair<Time, uint64_t>, Loop::TimerId>> made;
  std::set<Loop::TimerId> ids;
  uint64_t last = 0;
  for (uint64_t step = 0; step < 20000; ++step) {
    if (random() % 3 != 0) {
      const std::pair key(at(static_cast<int64_t>(random() % 1000)), step);
      const auto id = queue.add(key.first, step, [&last, step] { last = step; });
      EXPECT_TRUE(ids.insert(id).second);
      model[key] = id;
      made.emplace_back(key, id);
    } else if (random() % 2 == 0 && !made.empty()) {
      const auto& [key, id] = made[random() % made.size()];
      queue.cancel(id);
      model.erase(key);
    } else if (Task task = queue.pop_due(at(500))) {
      task();
      ASSERT_EQ(model.begin()->first.second, last);
      model.erase(model.begin());
    } else {
      ASSERT_TRUE(model.empty() || model.begin()->first.first > at(500));
    }
    ASSERT_EQ(queue.size(), model.size());
  }
}

}  // namespace
}  // namespace forebay
