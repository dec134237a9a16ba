#include "attr/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "attr/record.h"
#include "core/testing.h"

namespace forebay::attr {
namespace {

using Kind = Command::Kind;

Once once(uint64_t client, uint64_t sequence, uint16_t lane = 0) {
  return {client, 7, sequence, lane};
}

// All of it, in an order that does not depend on how it came about.
std::vector<std::string> seen(const State& state) {
  std::vector<std::string> all;
  state.snapshot([&](const Command& c) {
    std::string bytes;
    append_record(bytes, 0, c);
    all.push_back(std::move(bytes));
  });
  std::ranges::sort(all);
  return all;
}

State copied(const State& state) {
  State copy;
  state.snapshot([&](const Command& c) { EXPECT_TRUE(copy.apply(c)); });
  return copy;
}

uint32_t with_file(State& state, std::string_view key) {
  const uint32_t number = state.next_file();
  EXPECT_TRUE(state.apply({.kind = Kind::file, .file = number, .name = key, .handle = "h"}));
  return number;
}

TEST(State, ARequestIsRememberedUntilTheNextInItsLane) {
  State state;
  const uint32_t f = with_file(state, "f");
  ASSERT_TRUE(state.apply({.kind = Kind::create, .file = f, .value = 5, .name = "n"}));
  EXPECT_FALSE(state.recall(once(1, 1))->has_value());
  EXPECT_EQ(state.apply({Kind::add, f, 2, 0, once(1, 1), "n"}).value(), 5u);
  EXPECT_EQ(state.apply({Kind::add, f, 2, 0, once(1, 1, 3), "n"}).value(), 7u);
  EXPECT_EQ(state.recall(once(1, 1)).value()->value, 5u);
  EXPECT_EQ(state.recall(once(1, 1, 3)).value()->value, 7u);
  EXPECT_FALSE(state.recall(once(2, 1))->has_value()) << "another client";
  EXPECT_EQ(state.apply({Kind::add, f, 2, 0, once(1, 2), "n"}).value(), 9u);
  EXPECT_EQ(state.recall(once(1, 1)).error().code(), ECANCELED);
  EXPECT_EQ(seen(copied(state)), seen(state));
  ASSERT_TRUE(state.apply({.kind = Kind::forget_client, .once = once(1, 0)}));
  EXPECT_FALSE(state.recall(once(1, 1))->has_value());
  EXPECT_EQ(state.counts().lanes, 0u);
}

TEST(State, WhatFailsChangesNothing) {
  State state;
  const uint32_t f = with_file(state, "f");
  const auto before = seen(state);
  EXPECT_EQ(state.apply({Kind::add, f, 2, 0, once(1, 1), "n"}).error().code(), ENODATA);
  EXPECT_EQ(state.apply({Kind::add, f + 1, 2, 0, once(1, 1), "n"}).error().code(), EINVAL);
  EXPECT_FALSE(state.apply({.kind = Kind::file, .file = f + 1, .name = "f"}));
  EXPECT_EQ(seen(state), before);
}

TEST(State, AFileWithoutAnythingIsForgotten) {
  State state;
  const uint32_t f = with_file(state, "f");
  ASSERT_TRUE(state.apply({.kind = Kind::create, .file = f, .name = "n"}));
  ASSERT_TRUE(state.apply({.kind = Kind::remove, .file = f, .name = "n"}));
  EXPECT_EQ(state.find("f"), 0u);
  EXPECT_EQ(state.counts().files, 0u);
}

TEST(State, AGrantIsOpenUntilItIsSettled) {
  State state;
  const uint32_t f = with_file(state, "f");
  ASSERT_TRUE(state.apply({Kind::append, f, 100, 10, once(1, 1)}));
  ASSERT_TRUE(state.apply({Kind::append, f, 110, 20, once(2, 1)}));
  EXPECT_EQ(state.end(f), 130u);
  EXPECT_TRUE(state.recall(once(1, 1)).value()->open);
  ASSERT_TRUE(state.apply({Kind::wrote, f, 100, 0, once(1, 1)}));
  EXPECT_FALSE(state.recall(once(1, 1)).value()->open);
  ASSERT_TRUE(state.apply({Kind::lost, f, 110, 0, once(2, 1)}));
  EXPECT_EQ(state.holes(f), (std::vector<Hole>{{110, 20}}));
  EXPECT_TRUE(state.recall(once(2, 1)).value()->open) << "it may come again";
  const State copy = copied(state);
  EXPECT_EQ(seen(copy), seen(state));
  EXPECT_TRUE(copy.recall(once(2, 1)).value()->open);
  ASSERT_TRUE(state.apply({Kind::wrote, f, 110, 0, once(2, 1)}));
  EXPECT_TRUE(state.holes(f).empty()) << "and then there is no hole";
}

TEST(State, WhoIsForgottenLeavesAHole) {
  State state;
  const uint32_t f = with_file(state, "f");
  ASSERT_TRUE(state.apply({Kind::append, f, 0, 10, once(1, 1)}));
  ASSERT_TRUE(state.apply({Kind::append, f, 10, 10, {}}));
  EXPECT_EQ(state.orphans().size(), 1u) << "of no client";
  ASSERT_TRUE(state.apply({.kind = Kind::forget_client, .once = once(1, 0)}));
  EXPECT_EQ(state.holes(f), (std::vector<Hole>{{0, 10}}));
}

TEST(State, ACutTakesWhatLiesBehindIt) {
  State state;
  const uint32_t f = with_file(state, "f");
  ASSERT_TRUE(state.apply({Kind::append, f, 0, 10, once(1, 1)}));
  ASSERT_TRUE(state.apply({Kind::append, f, 10, 10, once(2, 1)}));
  ASSERT_TRUE(state.apply({Kind::lost, f, 10, 0, once(2, 1)}));
  ASSERT_TRUE(state.apply({.kind = Kind::cut, .file = f, .value = 5}));
  EXPECT_EQ(state.end(f), 5u);
  EXPECT_TRUE(state.holes(f).empty());
  EXPECT_FALSE(state.recall(once(1, 1)).value()->open) << "it has happened, and was cut off";
  ASSERT_TRUE(state.apply({Kind::wrote, f, 0, 0, once(1, 1)})) << "its flight ends later";
}

TEST(State, AnIntentWaitsForItsOutcome) {
  State state;
  ASSERT_TRUE(state.apply({.kind = Kind::intend, .once = once(1, 1), .name = "what"}));
  EXPECT_FALSE(state.apply({.kind = Kind::intend, .name = "of nobody"}));
  EXPECT_TRUE(state.recall(once(1, 1)).value()->open);
  const State copy = copied(state);
  ASSERT_EQ(copy.intents().size(), 1u);
  EXPECT_EQ(copy.intents()[0].first, once(1, 1));
  EXPECT_EQ(*copy.intents()[0].second, "what");
  const auto done = static_cast<uint64_t>(Named::done);
  ASSERT_TRUE(state.apply({.kind = Kind::named, .value = done, .once = once(1, 2)}));
  EXPECT_EQ(state.intents().size(), 1u) << "that was another";
  ASSERT_TRUE(state.apply({.kind = Kind::named, .value = done, .once = once(1, 1)}));
  EXPECT_TRUE(state.intents().empty());
  EXPECT_EQ(copied(state).recall(once(1, 1)).value()->value, done);
  ASSERT_TRUE(state.apply({.kind = Kind::intend, .once = once(1, 2), .name = "next"}));
  EXPECT_EQ(state.recall(once(1, 1)).error().code(), ECANCELED);
  ASSERT_TRUE(state.apply({.kind = Kind::forget_client, .once = once(1, 0)}));
  EXPECT_TRUE(state.intents().empty());
}

TEST(State, IsBounded) {
  State state({.files = 2, .attributes = 1, .lanes = 3, .holes = 1});
  const uint32_t a = with_file(state, "a"), b = with_file(state, "b");
  EXPECT_EQ(state.apply({.kind = Kind::file, .file = b + 1, .name = "c"}).error().code(), ENOSPC);
  ASSERT_TRUE(state.apply({.kind = Kind::create, .file = a, .name = "n"}));
  EXPECT_EQ(state.apply({.kind = Kind::create, .file = a, .name = "m"}).error().code(), ENOSPC);
  ASSERT_TRUE(state.apply({Kind::add, a, 1, 0, once(1, 1, 2), "n"}));
  EXPECT_EQ(state.apply({Kind::add, a, 1, 0, once(2, 1), "n"}).error().code(), ENOBUFS);
  EXPECT_EQ(state.get(a, "n").value(), 1u);
  for (uint64_t at : {0u, 10u}) {
    ASSERT_TRUE(state.apply({Kind::append, b, at, 10, {}}));
    ASSERT_TRUE(state.apply({Kind::lost, b, at, 0, {}}));
  }
  EXPECT_EQ(state.holes(b), (std::vector<Hole>{{10, 10}}));
  EXPECT_EQ(state.counts().holes, 2u);
  EXPECT_EQ(state.bare_files(9).size(), 0u);
}

// However many clients one user has, another finds room; and gets it back when they are forgotten.
TEST(State, NoUserTakesAllThatIsRemembered) {
  State state({.lanes = 64});
  const uint32_t file = with_file(state, "f");
  ASSERT_TRUE(state.apply({.kind = Kind::create, .file = file, .name = "n"}));
  uint64_t clients = 0;
  const auto comes = [&](uint32_t user, uint16_t lanes = 1) {
    const Once first = once(++clients, 1, static_cast<uint16_t>(lanes - 1));
    if (!state.room_for(first, user)) return false;
    EXPECT_TRUE(state.apply({Kind::add, file, 1, 0, first, "n"}));
    EXPECT_FALSE(state.has_user(first));
    EXPECT_TRUE(state.apply({.kind = Kind::user, .value = user, .once = once(clients, 0)}));
    EXPECT_TRUE(state.has_user(first));
    return true;
  };
  const auto all_that_it_gets = [&](uint32_t user) {
    size_t got = 0;
    while (comes(user)) ++got;
    return got;
  };
  EXPECT_EQ(state.room_for(once(1000, 1, 40), 7).error().code(), ENOBUFS);
  EXPECT_EQ(all_that_it_gets(7), 32u);
  EXPECT_EQ(all_that_it_gets(8), 16u);
  EXPECT_EQ(all_that_it_gets(9), 8u);
  EXPECT_TRUE(state.room_for(once(1, 2), 7)) << "a request in a lane that there is";
  EXPECT_EQ(state.room_for(once(1, 1, 1), 7).error().code(), ENOBUFS) << "another lane";
  EXPECT_EQ(state.room_for(once(1, 1, 8), 9).error().code(), ENOBUFS) << "it is not that user's";
  EXPECT_TRUE(state.room_for({}, 7));
  EXPECT_TRUE(copied(state).has_user(once(1, 1)));
  ASSERT_TRUE(state.apply({.kind = Kind::user, .value = 9, .once = once(1, 0)})) << "as before";
  for (uint64_t client = 1; client <= 32; ++client) {
    ASSERT_TRUE(state.apply({.kind = Kind::forget_client, .once = once(client, 0)}));
  }
  EXPECT_EQ(state.counts().lanes, 24u);
  EXPECT_TRUE(comes(7, 20));
}

// Random commands; after each, a copy by snapshot is the same.
TEST(State, ASnapshotIsAllOfIt) {
  std::mt19937_64 random(test_seed());
  const auto upto = [&](uint64_t n) { return random() % n; };
  State state;
  for (int i = 0; i < 400; ++i) {
    Command c;
    c.kind = static_cast<Kind>(1 + upto(static_cast<uint64_t>(Kind::user)));
    if (c.kind == Kind::lane || c.kind == Kind::hole || c.kind == Kind::give_back) continue;
    c.file = c.kind == Kind::file ? state.next_file() : static_cast<uint32_t>(1 + upto(4));
    c.value = upto(50);
    c.extra = 1 + upto(20);
    const std::string name = "n" + std::to_string(c.kind == Kind::file ? upto(6) : upto(3));
    c.name = name;
    if (c.kind == Kind::append) c.value = state.end(c.file);
    if (upto(2)) c.once = once(upto(3), 1 + upto(10), static_cast<uint16_t>(upto(3)));
    if (const auto known = state.recall(c.once); !known || *known) continue;
    (void)state.apply(c);
    ASSERT_EQ(seen(copied(state)), seen(state)) << "after command " << i;
  }
  EXPECT_GT(state.counts().files, 0u);
}

TEST(State, ALastPlaceThatNobodyHasWrittenToIsGivenBack) {
  State state;
  const uint32_t f = with_file(state, "f");
  const auto granted = [&](uint64_t place, uint64_t length, const Once& by) {
    ASSERT_TRUE(state.apply({Kind::append, f, place, length, by}));
  };
  granted(0, 10, once(1, 1));
  ASSERT_TRUE(state.apply({Kind::wrote, f, 0, 0, once(1, 1)}));
  granted(100, 5, once(1, 2));  // somebody has written up to here meanwhile
  granted(105, 5, once(2, 1));
  granted(110, 5, once(3, 1));
  EXPECT_TRUE(state.giving_back(f, 105).empty()) << "not the last";
  ASSERT_TRUE(state.apply({Kind::lost, f, 105, 0, once(2, 1)}));
  state.untouched(f, 105);
  ASSERT_TRUE(state.apply({Kind::lost, f, 100, 0, once(1, 2)}));  // by whom, nobody knows
  for (const Command& c : state.giving_back(f, 110)) ASSERT_TRUE(state.apply(c));
  EXPECT_EQ(state.end(f), 105u) << "with the hole before it";
  EXPECT_EQ(state.holes(f), (std::vector<Hole>{{100, 5}}));
  EXPECT_FALSE(state.recall(once(3, 1))->has_value()) << "it never was";
  EXPECT_FALSE(state.recall(once(2, 1))->has_value());
  EXPECT_EQ(seen(copied(state)), seen(state));
  granted(105, 7, once(2, 1));
  state.came_again(**state.recall(once(2, 1)));
  EXPECT_TRUE(state.giving_back(f, 105).empty()) << "two of them may write there";
  EXPECT_EQ(state.recall(once(2, 1)).value()->value, 105u);
}

}  // namespace
}  // namespace forebay::attr
