#include "core/callback.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace forebay {
namespace {

TEST(Callback, CallsWhatItHolds) {
  Callback<int(int)> twice = [](int x) { return 2 * x; };
  EXPECT_EQ(twice(21), 42);
  EXPECT_FALSE(Callback<void()>());
  EXPECT_FALSE(Callback<void()>(nullptr));
}

TEST(Callback, MovesArgumentsThrough) {
  Callback<std::unique_ptr<int>(std::unique_ptr<int>)> pass = [](std::unique_ptr<int> p) {
    return p;
  };
  EXPECT_EQ(*pass(std::make_unique<int>(7)), 7);
}

template <size_t Size>
void moves_and_destroys_once() {
  auto token = std::make_shared<int>(5);
  std::array<char, Size> ballast{};
  {
    Callback<int()> a = [token, ballast] { return *token + ballast[0]; };
    EXPECT_EQ(token.use_count(), 2);
    Callback<int()> b = std::move(a);
    EXPECT_FALSE(a);
    EXPECT_EQ(b(), 5);
    EXPECT_EQ(b(), 5) << "may be called again";
    a = std::move(b);
    EXPECT_EQ(a(), 5);
    EXPECT_EQ(token.use_count(), 2);
    a = nullptr;
    EXPECT_EQ(token.use_count(), 1);
    a = [token] { return *token; };
    EXPECT_EQ(token.use_count(), 2);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(Callback, MovesAndDestroysOnceInline) {
  moves_and_destroys_once<8>();
}
TEST(Callback, MovesAndDestroysOnceOnTheHeap) {
  moves_and_destroys_once<500>();
}

TEST(Callback, KeepsStateOfItsOwn) {
  Callback<int()> count = [n = 0]() mutable { return ++n; };
  count();
  EXPECT_EQ(count(), 2);
}

TEST(CallbackDeath, AsksForSomethingToCall) {
  Task nothing;
  EXPECT_DEATH(nothing(), "assertion failed");
}

}  // namespace
}  // namespace forebay
