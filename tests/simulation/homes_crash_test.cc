// Several servers, of which any may end at any moment and come back: what is done once is done
// once, and locks stay whose they are, wherever the file lives and whichever server is asked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cluster.h"

namespace forebay::sim {
namespace {

const std::vector<std::string> kAll = {"a", "b", "c"};

Request about_name(Op op, const Handle& dir, std::string name) {
  Request r;
  r.op = op;
  r.caller = this_process_caller();
  r.handle = dir;
  r.name = std::move(name);
  if (op == Op::mkdir || op == Op::create) r.mode = 0755;
  return r;
}

// Submits it, kills a server or two somewhere on its way, and starts them again.
Result<Reply> through_a_crash(Cluster& cluster, const std::string& via, Request request) {
  std::optional<Result<Reply>> result;
  cluster.client(via).submit(std::move(request), [&](Result<Reply>&& r) { result = std::move(r); });
  const uint64_t steps = cluster.random() % 40;
  for (uint64_t i = 0; i < steps && !result; ++i) cluster.loop.run_one(1s);
  std::vector<std::string> down = {via};
  if (cluster.random() % 2 == 0) down.push_back(cluster.any_server());
  if (cluster.random() % 4 == 0) down.erase(down.begin());
  std::ranges::sort(down);
  down.erase(std::unique(down.begin(), down.end()), down.end());
  for (const std::string& name : down) cluster.kill(name);
  for (const std::string& name : down) cluster.start(name, kAll);
  cluster.loop.run_until([&] { return result.has_value(); }, 5min);
  if (!result) return Error(ETIME, "it never ended");
  return std::move(*result);
}

// One client, so each of these must succeed, and be seen to have; unless the server that did it has
// ended, and cannot tell its own work from that of others.
TEST(HomesCrash, NamesAreChangedOnceThroughAnyServer) {
  Cluster cluster(test_seed());
  int unknown = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string via = cluster.any_server();
    SCOPED_TRACE(fmt::format("round {} through {}", round, via));
    Program program(cluster.client(via));
    const auto there = [&](const Handle& dir, const std::string& name) {
      return program.call(Op::lookup, dir, name).has_value();
    };
    const std::string name = fmt::format("d{}", round);
    const auto good = [](const Result<Reply>& r) {
      return r ? ::testing::AssertionSuccess()
               : ::testing::AssertionFailure() << r.error().message();
    };
    const auto good_or_unknown = [&](const Result<Reply>& r) {
      unknown += !r;
      return r || r.error().is_outcome_unknown() ? ::testing::AssertionSuccess() : good(r);
    };
    auto dir = through_a_crash(cluster, via, about_name(Op::mkdir, program.root(), name));
    ASSERT_TRUE(good_or_unknown(dir)) << "mkdir";
    dir = program.call(Op::lookup, program.root(), name);
    ASSERT_TRUE(good(dir));
    Request create = about_name(Op::create, dir->handle, "x");
    create.flags = kFlagExclusive;
    create.access = Access::both;
    auto file = through_a_crash(cluster, via, std::move(create));
    ASSERT_TRUE(good_or_unknown(file)) << "create";
    file = program.call(Op::lookup, dir->handle, "x");
    ASSERT_TRUE(good(file));
    Request rename = about_name(Op::rename, dir->handle, "x");
    rename.handle2 = dir->handle;
    rename.name2 = "y";
    ASSERT_TRUE(good(through_a_crash(cluster, via, std::move(rename)))) << "rename";
    ASSERT_TRUE(there(dir->handle, "y") && !there(dir->handle, "x"));
    Request link = about_name(Op::link, file->handle, "");
    link.handle2 = dir->handle;
    link.name2 = "z";
    ASSERT_TRUE(good(through_a_crash(cluster, via, std::move(link)))) << "link";
    for (const char* one : {"y", "z"}) {
      const auto removed = through_a_crash(cluster, via, about_name(Op::remove, dir->handle, one));
      ASSERT_TRUE(good_or_unknown(removed)) << "remove";
      ASSERT_FALSE(there(dir->handle, one));
    }
  }
  EXPECT_LT(unknown, 60);
}

// A server ends before or after a change that it has written down, and before it is back a client
// of another tries the same: only one of the two is told that it was the one.
TEST(HomesCrash, OneOfTwoServersHasChangedAName) {
  Cluster cluster(test_seed());
  const Handle root = cluster.disk.root().value();
  for (const Op op : {Op::mkdir, Op::create, Op::symlink, Op::remove}) {
    int second_won = 0;
    for (int round = 0; round < 12; ++round) {
      const std::string name = fmt::format("{}-{}", op_info(op).name, round);
      SCOPED_TRACE(name);
      Request request = about_name(op, root, name);
      if (op == Op::create) request.flags = kFlagExclusive;
      if (op == Op::symlink) request.data = "target";
      if (op == Op::remove) {
        ASSERT_TRUE(cluster.client("c").call(about_name(Op::mkdir, root, name)));
        request.flags = kFlagDirectory;
      }
      std::optional<Result<Reply>> first, second;
      if (round % 2 == 0) cluster.hold("a", op);
      cluster.client("a").submit(Request(request), [&](auto&& r) { first = std::move(r); });
      for (uint64_t i = 0, n = cluster.random() % 60; i < n && !first; ++i) {
        cluster.loop.run_one(10ms);
      }
      cluster.kill("a");
      cluster.client("b").submit(Request(request), [&](auto&& r) { second = std::move(r); });
      cluster.loop.run_until([&] { return second.has_value(); }, 5min);
      cluster.start("a", kAll);
      cluster.loop.run_until([&] { return first.has_value(); }, 5min);
      ASSERT_TRUE(first && second);
      ASSERT_FALSE(*first && *second) << "both have heard that they did it";
      second_won += second->has_value();
      const bool there = cluster.client("b").call(about_name(Op::lookup, root, name)).has_value();
      EXPECT_EQ(there, op != Op::remove);
    }
    EXPECT_GE(second_won, 6) << op_info(op).name;
  }
}

// What the home of a file does only when the server that asked for it is back is not taken for
// undone by that.
TEST(HomesCrash, AHomeThatIsLateIsAsked) {
  Cluster cluster(test_seed());
  Program program(cluster.client("a"));
  for (int i = 0, late = 0; late < 20; ++i) {
    const std::string name = fmt::format("f{}", i);
    const OpenFile file = program.create(name).value();
    if (cluster.home_of(file.handle) != "b") continue;
    ++late;
    std::optional<Result<Reply>> result;
    cluster.hold("b", Op::remove);
    cluster.client("a").submit(about_name(Op::remove, program.root(), name),
                               [&](Result<Reply>&& r) { result = std::move(r); });
    cluster.loop.run_for(100ms);
    ASSERT_FALSE(result);
    cluster.kill("a");
    cluster.start("a", kAll);
    cluster.release("b");
    cluster.loop.run_until([&] { return result.has_value(); }, 5min);
    ASSERT_TRUE(result && *result) << result->error().message();
  }
}

// Names that wait for each other in a circle of servers would wait for ever.
TEST(HomesCrash, RenamesThatCrossDoNotWaitForEachOther) {
  Cluster cluster(test_seed());
  const Handle root = cluster.disk.root().value();
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(Program(cluster.client("a")).create(fmt::format("n{}", i)));
  }
  const Time began = cluster.loop.now();
  for (int round = 0; round < 50; ++round) {
    size_t left = 0;
    for (int i = 0; i < 12; ++i) {
      Request r = about_name(Op::rename, root, fmt::format("n{}", cluster.random() % 6));
      r.handle2 = root;
      r.name2 = fmt::format("n{}", cluster.random() % 6);
      ++left;
      cluster.client(cluster.any_server()).submit(std::move(r), [&left](Result<Reply>&& result) {
        EXPECT_TRUE(result || result.error().code() == ENOENT) << result.error().message();
        --left;
      });
    }
    cluster.loop.run_until([&] { return left == 0; }, 10min);
    ASSERT_EQ(left, 0u);
    for (int i = 0; i < 6; ++i) (void)Program(cluster.client("b")).create(fmt::format("n{}", i));
  }
  EXPECT_LT(cluster.loop.now() - began, 20s) << "somebody has waited for a deadline";
}

// The holder asks for nothing while servers end and come back.
TEST(HomesCrash, LocksStayWhoseTheyAre) {
  Cluster cluster(test_seed());
  Program holder(cluster.client("a")), other(cluster.client("b"));
  std::vector<OpenFile> mine, theirs;
  const auto lock = [](Program& program, const OpenFile& file, Op op = Op::lock) {
    Request r;
    r.op = op;
    r.handle = file.handle;
    if (op == Op::lock) r.right = file.right;
    r.cookie = 1;
    r.length = Length(10);
    const auto got = program.call(std::move(r));
    if (!got && got.error().code() != EAGAIN) ADD_FAILURE() << got.error().message();
    return got ? 0 : got.error().code();
  };
  for (int i = 0; i < 6; ++i) {
    mine.push_back(holder.create(fmt::format("f{}", i)).value());
    theirs.push_back(other.open(mine.back().handle).value());
    ASSERT_EQ(lock(holder, mine.back()), 0);
  }
  for (int round = 0; round < 12; ++round) {
    std::string down;
    for (const std::string& name : kAll) {
      if (cluster.random() % 2 == 0) down += name;
    }
    SCOPED_TRACE("down: " + down);
    for (const char name : down) cluster.kill(std::string(1, name));
    for (const char name : down) cluster.start(std::string(1, name), kAll);
    cluster.loop.run_for(cluster.random() % 2 == 0 ? 60s : 1s);
    for (const OpenFile& file : theirs) EXPECT_EQ(lock(other, file), EAGAIN);
  }
  for (const OpenFile& file : mine) EXPECT_EQ(lock(holder, file, Op::unlock), 0);
  for (const OpenFile& file : theirs) EXPECT_EQ(lock(other, file), 0);
}

}  // namespace
}  // namespace forebay::sim
