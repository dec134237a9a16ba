// The simulator of `forebay bench ibcs`, part by part.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "bench/ibcs_run.h"
#include "bench/ibcs_store.h"
#include "core/testing.h"

namespace forebay::bench {
namespace {

// The same, byte by byte.
TEST(IbcsStriping, IsRoundRobin) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 50; ++round) {
    const Striping striping{1 + random() % 9, static_cast<uint32_t>(1 + random() % 5)};
    const uint64_t begin = random() % 200, end = begin + random() % 200;
    std::map<uint32_t, ExtentSet> bytes;
    for (uint64_t at = begin; at < end; ++at) {
      const auto target = static_cast<uint32_t>(at / striping.stripe % striping.targets);
      const uint64_t offset = striping.on_target(target, at);
      EXPECT_EQ(striping.file_offset(target, offset), at);
      bytes[target].push_back(ext(offset, 1));
    }
    const auto pieces = striping.pieces(begin, end);
    EXPECT_EQ(pieces.size(), bytes.size());
    for (const Piece& piece : pieces) {
      EXPECT_EQ(normalise(bytes[piece.target]), ExtentSet{ext(piece.offset, piece.bytes)});
    }
  }
}

TEST(IbcsLoad, EveryProcessOfBtioHasItsShare) {
  for (const uint32_t processes : {9u, 36u}) {  // whose cells are all of one size
    const IbcsLoad load = btio(processes);
    std::vector<uint64_t> shares(processes);
    load.owners(load.bytes, load.bytes + 12345, shares);
    load.owners(load.bytes + 12345, 2 * load.bytes, shares);
    EXPECT_EQ(shares, std::vector<uint64_t>(processes, load.bytes / processes));
  }
  std::vector<uint64_t> shares(25);
  btio(25).owners(0, btio(25).bytes, shares);
  EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), uint64_t{0}), btio(25).bytes);
}

TEST(IbcsLoad, AggregatorsAreTheFirstOfTheirNodes) {
  for (const uint32_t processes : {9u, 16u, 25u, 36u}) {
    const IbcsLoad load = btio(processes);
    for (uint32_t a = 0; a < 4; ++a) {
      EXPECT_EQ(load.node_of(load.process_of(a)), a);
      if (a > 0) {
        EXPECT_EQ(load.node_of(load.process_of(a) - 1), a - 1);
      }
    }
  }
}

// Which bytes of which targets an aggregator moves in a call.
std::vector<std::map<uint32_t, ExtentSet>> realms(const Windows& windows, const IbcsLoad& load) {
  std::vector<std::map<uint32_t, ExtentSet>> result(load.aggregators);
  for (const auto& iteration : windows) {
    for (uint32_t a = 0; a < load.aggregators; ++a) {
      for (const Piece& piece : iteration[a]) {
        result[a][piece.target].push_back(ext(piece.offset, piece.bytes));
      }
    }
  }
  for (auto& by_target : result) {
    for (auto& [target, set] : by_target) set = normalise(set);
  }
  return result;
}

TEST(IbcsLoad, TheOrderLeavesTheRealmsAsTheyWere) {
  for (const IbcsLoad& load : {ior(6), btio(16)}) {
    for (uint64_t call = 0; call < 3; ++call) {
      EXPECT_EQ(realms(windows_of({}, load, Strategy::even, call), load),
                realms(windows_of({}, load, Strategy::ibcs, call), load));
    }
  }
}

constexpr IbcsModel kRound{.link = 100,
                           .latency = 1,
                           .packet = 10,
                           .disk = 100,
                           .seek = 5,
                           .revoke = 7,
                           .request = 0.5,
                           .rpc = 100,
                           .stripe = 100};

TEST(IbcsNetwork, ConnectionsShareALinkAndTransfersOnOneFollowEachOther) {
  VirtualTime time;
  Network network(time, kRound, 4);
  std::vector<double> at(4);
  const auto arrival = [&](size_t i) { return [&time, &at, i] { at[i] = time.now(); }; };
  network.send({0, 1, 100, arrival(0)});
  network.send({0, 1, 100, arrival(1)});
  network.send({0, 2, 100, arrival(2)});
  network.send({3, 0, 100, arrival(3)});
  time.run();
  EXPECT_NEAR(at[0], 1 + 2, 0.21) << "half of the link";
  EXPECT_NEAR(at[2], 1 + 2, 0.21) << "the other half";
  EXPECT_NEAR(at[1], 1 + 3, 0.01);
  EXPECT_NEAR(at[3], 1 + 1, 0.01) << "the other direction";
}

TEST(IbcsNetwork, ReceiversLinksAreSharedToo) {
  VirtualTime time;
  Network network(time, kRound, 3);
  std::vector<double> at(2);
  for (uint32_t i = 0; i < 2; ++i) {
    network.send({i, 2, 100, [&, i] { at[i] = time.now(); }});
  }
  time.run();
  EXPECT_NEAR(at[0], 1 + 2, 0.11);
  EXPECT_NEAR(at[1], 1 + 2, 0.01);
}

struct Served {
  uint64_t offset;
  double at;
};

struct TargetTest : testing::Test {
  VirtualTime time;
  Target target{time, kRound};
  std::vector<Served> served;

  void add(uint32_t client, uint64_t offset, uint64_t bytes, bool write = true) {
    target.add({client, write, ext(offset, bytes), [this, offset] {
                  served.push_back({offset, time.now()});
                }});
  }
};

TEST_F(TargetTest, WhatFollowsNeedsNoSeek) {
  add(1, 0, 100);
  add(1, 100, 100);
  add(1, 300, 100);
  time.run();
  ASSERT_EQ(served.size(), 3u);
  EXPECT_DOUBLE_EQ(served[0].at, 1.5);
  EXPECT_DOUBLE_EQ(served[1].at, 3);
  EXPECT_DOUBLE_EQ(served[2].at, 3 + 1.5 + 5);
  EXPECT_EQ(target.seeks(), 1u);
}

TEST_F(TargetTest, ServesByRisingOffset) {
  for (const uint64_t offset : {300, 500, 100, 400}) add(1, offset, 50, false);
  time.run();
  std::vector<uint64_t> order;
  for (const Served& one : served) order.push_back(one.offset);
  EXPECT_EQ(order, (std::vector<uint64_t>{300, 400, 500, 100}));
}

TEST_F(TargetTest, ALockGrowsAndIsRevokedByWhoeverComesIntoItsWay) {
  add(1, 0, 100);  // has all of it now
  time.run();
  add(1, 800, 100);
  time.run();
  EXPECT_EQ(target.revocations(), 0u);
  add(2, 400, 100);
  time.run();
  EXPECT_EQ(target.revocations(), 1u);
  EXPECT_DOUBLE_EQ(served[2].at - served[1].at, 1.5 + 5 + 7);
  add(2, 0, 100, false);
  add(1, 500, 100, false);
  time.run();
  EXPECT_EQ(target.revocations(), 1u) << "readers";
}

TEST_F(TargetTest, ALockDoesNotGrowOverThoseWhoWait) {
  add(1, 0, 100, false);  // while it is served, the others wait
  for (const uint32_t client : {1u, 2u, 3u}) add(client, client * 200, 100);
  time.run();
  for (const uint32_t client : {1u, 2u, 3u}) add(client, client * 200 + 100, 100);
  time.run();
  EXPECT_EQ(target.revocations(), 0u);
}

TEST_F(TargetTest, TwoInOneStripeAreInEachOthersWay) {
  add(1, 0, 50);
  add(2, 50, 50);
  time.run();
  EXPECT_EQ(target.revocations(), 1u);
}

// One process, one target: the time is known.
TEST(IbcsRun, TakesAsLongAsItMust) {
  IbcsLoad load = ior(1);
  load.calls = 1;
  IbcsModel model;
  model.copy = 1e15, model.latency = 0, model.request = 0, model.packet = 1 << 10;
  const IbcsResult result = simulate(model, load, Strategy::even, true);
  EXPECT_TRUE(result.verified);
  EXPECT_EQ(result.iterations, 12u);
  const double mib = 1 << 20;  // a buffer: four requests on the link, the last of them on the disk
  EXPECT_NEAR(result.seconds, 12 * (4 * mib / model.link + mib / model.disk), 0.001);
}

TEST(IbcsRun, NobodyDealsWithOthersThanBeforeAndNoTargetHasTwo) {
  for (IbcsLoad load : {ior(4), btio(9)}) {
    load.calls = 2;
    for (const bool write : {true, false}) {
      const IbcsResult even = simulate({}, load, Strategy::even, write);
      const IbcsResult ibcs = simulate({}, load, Strategy::ibcs, write);
      EXPECT_TRUE(even.verified && ibcs.verified);
      EXPECT_EQ(even.pairs, ibcs.pairs);
      EXPECT_EQ(ibcs.most_at_a_target, 1u);
      EXPECT_GT(even.most_at_a_target, 1u);
      EXPECT_EQ(ibcs.seconds, simulate({}, load, Strategy::ibcs, write).seconds);
      for (const Strategy other : {Strategy::cyclic, Strategy::rotated}) {
        EXPECT_TRUE(simulate({}, load, other, write).verified);
      }
    }
  }
}

}  // namespace
}  // namespace forebay::bench
