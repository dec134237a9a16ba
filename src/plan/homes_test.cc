#include "plan/homes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/testing.h"

namespace forebay::plan {
namespace {

std::vector<std::string> servers(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("node" + std::to_string(i));
  return names;
}

std::vector<std::string> identities(std::mt19937_64& random, int count) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    // As inodes are: close to each other, with the same bytes around them.
    std::string id(8 + random() % 20, 'i');
    const uint64_t inode = 1000 + static_cast<uint64_t>(i);
    for (size_t b = 0; b < 8; ++b) id[b] = static_cast<char>(inode >> (8 * b));
    out.push_back(id);
  }
  return out;
}

TEST(Homes, EveryServerHasItsShare) {
  std::mt19937_64 random(test_seed());
  for (const int count : {1, 2, 3, 4, 7, 16, 64}) {
    const Homes homes(servers(count));
    std::vector<int> files(count);
    const int total = 2000 * count;
    for (const std::string& id : identities(random, total)) ++files[homes.of(id)];
    for (const int n : files) {
      EXPECT_GT(n, 1700) << count << " servers";
      EXPECT_LT(n, 2300) << count << " servers";
    }
  }
}

TEST(Homes, OrderDoesNotMatter) {
  std::mt19937_64 random(test_seed());
  std::vector<std::string> names = servers(9);
  const Homes first(names);
  std::ranges::shuffle(names, random);
  const Homes second(names);
  EXPECT_EQ(first.text(), second.text());
  for (const std::string& id : identities(random, 5000)) {
    EXPECT_EQ(first.names()[first.of(id)], second.names()[second.of(id)]);
  }
}

TEST(Homes, ANewServerTakesOnlyItsShare) {
  std::mt19937_64 random(test_seed());
  for (const int count : {1, 3, 8, 20}) {
    const Homes before(servers(count)), after(servers(count + 1));
    EXPECT_NE(before.text(), after.text());
    int moved = 0;
    const int total = 1000 * (count + 1);
    for (const std::string& id : identities(random, total)) {
      const std::string& now = after.names()[after.of(id)];
      if (now == before.names()[before.of(id)]) continue;
      ++moved;
      EXPECT_EQ(now, after.names().back()) << "moved between servers that were there before";
    }
    EXPECT_GT(moved, 800);
    EXPECT_LT(moved, 1200);
  }
}

}  // namespace
}  // namespace forebay::plan
