#include "core/counters.h"

#include <gtest/gtest.h>

#include <thread>

namespace forebay {
namespace {

TEST(Counters, OneCounterPerNameSortedInASnapshot) {
  CounterSet set;
  set.get("writes").add(3);
  set.get("reads").add();
  set.get("writes").subtract();
  EXPECT_EQ(&set.get("reads"), &set.get("reads"));
  EXPECT_EQ(set.snapshot(),
            (std::vector<std::pair<std::string, uint64_t>>{{"reads", 1}, {"writes", 2}}));
}

TEST(Counters, AnyThread) {
  CounterSet set;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&set, t] {
      for (int i = 0; i < 1000; ++i)
        set.get(std::string(1, static_cast<char>('a' + (t + i) % 7))).add();
      set.snapshot();
    });
  }
  for (auto& t : threads) t.join();
  uint64_t sum = 0;
  for (const auto& [name, value] : set.snapshot()) sum += value;
  EXPECT_EQ(sum, 4000u);
}

}  // namespace
}  // namespace forebay
