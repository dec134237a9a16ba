#include "attr/values.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

#include "core/testing.h"

namespace forebay::attr {
namespace {

TEST(Values, DoWhatTheirNamesSay) {
  Values values;
  ASSERT_TRUE(values.create("pointer", 5));
  EXPECT_EQ(values.get("pointer").value(), 5u);
  EXPECT_EQ(values.fetch_and_add("pointer", 10).value(), 5u);
  EXPECT_EQ(values.fetch_and_add("pointer", static_cast<uint64_t>(-3)).value(), 15u);
  EXPECT_EQ(values.compare_and_swap("pointer", 11, 1).value(), 12u) << "not swapped";
  EXPECT_EQ(values.compare_and_swap("pointer", 12, 1).value(), 12u);
  EXPECT_EQ(values.get("pointer").value(), 1u);
  ASSERT_TRUE(values.set("pointer", UINT64_MAX));
  EXPECT_EQ(values.fetch_and_add("pointer", 2).value(), UINT64_MAX);
  EXPECT_EQ(values.get("pointer").value(), 1u) << "modulo 2^64";
  ASSERT_TRUE(values.remove("pointer"));
  EXPECT_EQ(values.size(), 0u);
}

TEST(Values, WhatIsNotThereIsSaid) {
  Values values;
  EXPECT_EQ(values.get("a").error().code(), ENODATA);
  EXPECT_EQ(values.set("a", 1).error().code(), ENODATA);
  EXPECT_EQ(values.remove("a").error().code(), ENODATA);
  EXPECT_EQ(values.fetch_and_add("a", 1).error().code(), ENODATA);
  EXPECT_EQ(values.compare_and_swap("a", 0, 1).error().code(), ENODATA);
  ASSERT_TRUE(values.create("a", 1));
  EXPECT_EQ(values.create("a", 2).error().code(), EEXIST);
  EXPECT_EQ(values.get("a").value(), 1u);
}

TEST(Values, NamesAndCountsAreBounded) {
  Values values(2);
  EXPECT_EQ(values.create("", 0).error().code(), EINVAL);
  EXPECT_EQ(values.create(std::string(Values::kMaxName + 1, 'x'), 0).error().code(), ENAMETOOLONG);
  ASSERT_TRUE(values.create(std::string(Values::kMaxName, '\x01'), 0));
  ASSERT_TRUE(values.create("b", 0));
  EXPECT_EQ(values.create("c", 0).error().code(), ENOSPC);
  ASSERT_TRUE(values.remove("b"));
  EXPECT_TRUE(values.create("c", 0));
}

// A list of pairs, searched from its beginning.
class PlainList {
 public:
  int create(const std::string& name, uint64_t value) {
    if (find(name)) return EEXIST;
    list_.emplace_back(name, value);
    return 0;
  }
  int remove(const std::string& name) {
    return std::erase_if(list_, [&](const auto& p) { return p.first == name; }) ? 0 : ENODATA;
  }
  uint64_t* find(const std::string& name) {
    for (auto& [n, v] : list_) {
      if (n == name) return &v;
    }
    return nullptr;
  }

 private:
  std::vector<std::pair<std::string, uint64_t>> list_;
};

template <class T>
int code(const Result<T>& result) {
  return result ? 0 : result.error().code();
}

TEST(Values, AreThoseOfAPlainList) {
  std::mt19937_64 random(test_seed());
  Values values;
  PlainList oracle;
  for (int i = 0; i < 20000; ++i) {
    const std::string name(1, static_cast<char>('a' + random() % 5));
    const uint64_t a = random() % 4, b = random() % 4;
    uint64_t* const expected = oracle.find(name);
    const auto same = [&](const Result<uint64_t>& got) {
      return expected ? got && *got == *expected : code(got) == ENODATA;
    };
    switch (random() % 6) {
      case 0:
        ASSERT_EQ(code(values.create(name, a)), oracle.create(name, a));
        break;
      case 1:
        ASSERT_EQ(code(values.remove(name)), oracle.remove(name));
        break;
      case 2:
        ASSERT_TRUE(same(values.get(name)));
        break;
      case 3:
        ASSERT_EQ(code(values.set(name, a)), expected ? 0 : ENODATA);
        if (expected) *expected = a;
        break;
      case 4:
        ASSERT_TRUE(same(values.fetch_and_add(name, a)));
        if (expected) *expected += a;
        break;
      default:
        ASSERT_TRUE(same(values.compare_and_swap(name, a, b)));
        if (expected && *expected == a) *expected = b;
    }
  }
}

}  // namespace
}  // namespace forebay::attr
