#include "mpiio/background.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

namespace forebay::mpiio {
namespace {

TEST(Background, DoesThingsInOrderAndOnAnotherThread) {
  std::vector<int> done;
  std::thread::id where;
  {
    Background background;
    for (int i = 0; i < 100; ++i)
      background.begin([&, i] {
        done.push_back(i);
        where = std::this_thread::get_id();
      });
  }  // waits for what was begun
  ASSERT_EQ(done.size(), 100u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(Background, WhatItDoesMayBeginMore) {
  std::promise<void> second;
  Background background;
  background.begin([&] { background.begin([&] { second.set_value(); }); });
  second.get_future().wait();
}

TEST(Background, TriesAgainBesideWhatIsBegun) {
  std::atomic<bool> free = false;
  std::atomic<int> tried = 0, other = 0;
  std::promise<void> done;
  Background background;
  background.retry(&tried, [&] {
    ++tried;
    if (free) done.set_value();
    return free.load();
  });
  background.retry(&other, [&] { return ++other == 3; });
  while (tried < 5) {
    std::promise<void> begun;
    background.begin([&] { begun.set_value(); });
    begun.get_future().wait();
  }
  EXPECT_LE(other, 3);
  free = true;
  done.get_future().wait();
  std::promise<void> later;
  background.retry(&tried, [&] {
    later.set_value();
    return true;
  });
  later.get_future().wait();
}

TEST(Background, EndsWithoutWhatNeverComesTrue) {
  std::atomic<int> old = 0, tried = 0;
  Background background;
  background.retry(&tried, [&] { return ++old < 0; });
  background.retry(&tried, [&] { return ++tried < 0; });  // instead of the other
  while (tried < 3) std::this_thread::yield();
  EXPECT_LE(old, 1);
}

}  // namespace
}  // namespace forebay::mpiio
