// How the clients of a loop share what leases another server gives it.
#include "server/relayed_leases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/testing.h"
#include "loop/sim_loop.h"

namespace forebay::server {
namespace {

using namespace std::chrono_literals;

// A home that gives everything, unless it fails: then it has given a lease and taken it back.
class Home final : public Store {
 public:
  void submit(Request&& request, Completion&& done) override {
    held.erase(request.handle.bytes);
    if (fails) return done(Error(EIO));
    Reply reply;
    reply.value = held[request.handle.bytes] = ++last;
    reply.count = term;
    done(std::move(reply));
  }
  Result<Handle> root() override { return Handle{"root"}; }
  void give_back(uint64_t lease) override {
    std::erase_if(held, [&](const auto& one) { return one.second == lease; });
  }

  bool fails = false;
  uint64_t last = 0, term = 5000;
  std::map<std::string, uint64_t> held;
};

class RelayedLeasesTest : public testing::Test {
 protected:
  static constexpr size_t kMost = 10;

  ~RelayedLeasesTest() override { leases_->close(); }
  static std::string file(uint64_t client, int number) {
    return std::to_string(client) + "/" + std::to_string(number);
  }
  // 0, or an errno.
  int ask(uint64_t client, const std::string& file) {
    Request ask;
    ask.op = Op::lease;
    ask.handle.bytes = file;
    int code = -1;
    leases_->take(std::move(ask), {client, file},
                  [&](Result<void> taken) { code = taken ? 0 : taken.error().code(); });
    EXPECT_LE(leases_->held(), kMost);
    EXPECT_EQ(home_.held.size(), leases_->held());
    return code;
  }
  void take(uint64_t client, int number) {
    EXPECT_EQ(ask(client, file(client, number)), 0);
    EXPECT_TRUE(home_.held.contains(file(client, number)));
  }
  size_t held_for(uint64_t client) const {
    return static_cast<size_t>(std::ranges::count_if(home_.held, [&](const auto& one) {
      return one.first.starts_with(std::to_string(client) + "/");
    }));
  }

  SimLoop loop_{test_seed()};
  Home home_;
  std::shared_ptr<LeaseTable> table_ = std::make_shared<LeaseTable>("", 5s, 1);
  std::shared_ptr<RelayedLeases> leases_ =
      std::make_shared<RelayedLeases>(home_, loop_, table_, kMost);
};

TEST_F(RelayedLeasesTest, WhoHasMostMakesRoom) {
  for (int i = 0; i < 100; ++i) take(1, i);
  EXPECT_EQ(held_for(1), kMost);
  EXPECT_TRUE(home_.held.contains(file(1, 99)));
  EXPECT_FALSE(home_.held.contains(file(1, 89))) << "the oldest go";
  for (int i = 0; i < 4; ++i) take(2, i);
  EXPECT_EQ(held_for(2), 4u);
  for (int i = 100; i < 200; ++i) take(1, i);
  EXPECT_EQ(held_for(2), 4u) << "of its share nobody takes it anything";
  EXPECT_EQ(held_for(1), kMost - 4);
  for (uint64_t client = 3; client < 8; ++client) {
    for (int i = 0; i < 5; ++i) take(client, i);
  }
  for (uint64_t client = 1; client < 8; ++client) EXPECT_GE(held_for(client), 1u) << client;
}

TEST_F(RelayedLeasesTest, WhatIsTakenAgainIsOne) {
  for (int i = 0; i < 20; ++i) take(1, i % 10);
  EXPECT_EQ(held_for(1), 10u);
  EXPECT_EQ(ask(2, file(1, 3)), 0);
  EXPECT_EQ(leases_->held(), 10u);
  EXPECT_EQ(held_for(1), 10u);
}

TEST_F(RelayedLeasesTest, WhoeverComesHasRoom) {
  for (uint64_t client = 1; client < 100; ++client) take(client, 0);
  EXPECT_EQ(leases_->held(), kMost);
}

// The home has none of the file any more, or one in place of that.
TEST_F(RelayedLeasesTest, WhatFailsEndsWhatWasHeld) {
  take(1, 0);
  home_.fails = true;
  EXPECT_EQ(ask(2, file(1, 0)), EIO);
  EXPECT_EQ(leases_->held(), 0u);
  home_.fails = false;
  take(1, 0);
  home_.term = 4000;
  EXPECT_EQ(ask(2, file(1, 0)), EOPNOTSUPP);
  EXPECT_EQ(leases_->held(), 0u);
}

TEST_F(RelayedLeasesTest, OfLostOnesNothingIsLeft) {
  for (uint64_t client = 1; client < 5; ++client) take(client, 0);
  static_cast<LeaseHolder&>(*leases_).lost();
  EXPECT_EQ(leases_->held(), 0u);
  home_.held.clear();
  for (uint64_t client = 1; client < 50; ++client) take(client, 0);
}

TEST_F(RelayedLeasesTest, WhatNobodyHasGoesBackAfterItsTime) {
  for (int i = 0; i < 5; ++i) take(1, i);
  loop_.run_for(6s);
  EXPECT_EQ(leases_->held(), 0u);
  EXPECT_TRUE(home_.held.empty());
  take(1, 7);
  EXPECT_EQ(leases_->held(), 1u);
}

}  // namespace
}  // namespace forebay::server
