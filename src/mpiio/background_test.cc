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

}  // namespace
}  // namespace forebay::mpiio
