// Small writes on their short way: merged, in order, each with its own result.
#include "server/small_writes.h"

#include <gtest/gtest.h>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

constexpr uint64_t kBlock = 512;

// Clients that have one file open, each of which has written to it once: the next write is
// gathered.
class SmallWritesTest : public ::testing::Test {
 protected:
  void start(int clients) {
    for (int i = 0; i < clients; ++i) {
      clients_.push_back(sim_.client(numbered("client", i)));
      files_.push_back(create(*clients_.back(), "f"));
      write(i, 1'000'000 + static_cast<uint64_t>(i), "x");
    }
    run_all();
    sim_.store->clear();
  }
  void write(int client, uint64_t at, std::string data) {
    const auto c = static_cast<size_t>(client);
    const uint64_t size = data.size();
    calls_.push_back(
        clients_[c]->send(data_request(Op::write, files_[c], range(at, size)), std::move(data)));
  }
  std::string block(int client, uint64_t k) { return pattern(k * 100 + client, kBlock); }
  void write_block(int client, uint64_t k) {
    write(client, (k * clients_.size() + static_cast<uint64_t>(client)) * kBlock, block(client, k));
  }
  void settle() { sim_.loop.run_for(20ms); }
  void run_all() {
    settle();
    for (const auto& call : calls_) {
      ASSERT_TRUE(call->done());
      EXPECT_EQ(call->error(), 0);
      EXPECT_EQ(call->replies, 1u);
    }
    calls_.clear();
  }
  void hold(std::optional<uint64_t> nth = {}) {
    sim_.store->add({.op = Op::write, .nth = nth, .action = FaultRule::Action::hold});
  }
  std::string content(uint64_t size) {
    sim_.store->clear();
    return read_back(*clients_[0], files_[0], size);
  }

  SimServer sim_{test_seed()};
  std::vector<std::unique_ptr<RawClient>> clients_;
  std::vector<OpenFile> files_;
  std::vector<RawClient::CallRef> calls_;
};

TEST_F(SmallWritesTest, OfManyClientsGoTogether) {
  start(8);
  hold(0);
  write_block(0, 0);  // while the Store has it, the others gather
  settle();
  for (int c = 1; c < 8; ++c) write_block(c, 0);
  for (int c = 0; c < 8; ++c) write_block(c, 1);
  settle();
  sim_.store->release();
  run_all();
  EXPECT_LE(sim_.store->calls(Op::write), 8u) << "of 16 writes";
  std::string expected;
  for (uint64_t k = 0; k < 2; ++k) {
    for (int c = 0; c < 8; ++c) expected += block(c, k);
  }
  EXPECT_EQ(content(expected.size()), expected);
}

TEST_F(SmallWritesTest, LongOnesOfManyClientsDoNotWaitForEachOther) {
  std::mt19937_64 random(test_seed());
  start(8);
  std::string expected(8 * 128 * 1024, '\0');
  expected.replace(1'000'000, 8, 8, 'x');  // of start()
  for (int round = 0; round < 20; ++round) {
    // Some are long, some touch each other, some are apart; each client has a part of its own.
    for (int c = 0; c < 8; ++c) {
      const uint64_t size = random() % 2 == 0 ? 16384 + random() % 8192 : 1 + random() % 4096;
      const uint64_t at = static_cast<uint64_t>(c) * 128 * 1024 +
                          (random() % 3 == 0 ? 128 * 1024 - size : random() % 65536);
      const std::string data = pattern(random(), size);
      expected.replace(at, size, data);
      write(c, at, data);
    }
    // No client may have more bytes under way than its credit, 256 KiB.
    if (random() % 2 == 0 || round % 8 == 7) run_all();
  }
  run_all();
  std::string got = content(expected.size());
  got.resize(expected.size());  // the last bytes may never have been written
  EXPECT_TRUE(got == expected);
}

TEST_F(SmallWritesTest, OverlappingOnesOfOneClientKeepTheirOrder) {
  std::mt19937_64 random(test_seed());
  start(2);
  std::string expected(8192, '\0');
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 6; ++i) {
      const uint64_t size = 1 + random() % 900, at = random() % (4096 - size);
      const std::string data = pattern(random(), size);
      // Each has a half of the file, so that the outcome is known.
      const int client = static_cast<int>(random() % 2);
      const uint64_t place = at + static_cast<uint64_t>(client) * 4096;
      expected.replace(place, size, data);
      write(client, place, data);
    }
    if (random() % 4 == 0 || round % 8 == 7) run_all();  // there are 64 slots
  }
  run_all();
  // What was never written is a hole.
  EXPECT_EQ(content(8192), expected);
}

TEST_F(SmallWritesTest, AReadThatFollowsSeesThem) {
  start(1);
  for (uint64_t k = 0; k < 50; ++k) {
    write_block(0, k % 3);
    const auto read =
        clients_[0]->send(data_request(Op::read, files_[0], range(k % 3 * kBlock, kBlock)));
    write(0, k % 3 * kBlock, block(1, k));
    clients_[0]->wait(read);
    EXPECT_EQ(read->in, block(0, k % 3));
  }
  run_all();
}

TEST_F(SmallWritesTest, EachHasItsOwnResult) {
  start(4);
  for (uint64_t nth = 0; nth < 6; ++nth) {
    sim_.store->clear();
    sim_.store->add({.op = Op::write, .nth = 0, .error = ENOSPC});
    if (nth > 0) sim_.store->add({.op = Op::write, .nth = nth, .error = ENOSPC});
    for (int c = 0; c < 4; ++c) write_block(c, nth);
    settle();
    for (int c = 0; c < 4; ++c) {
      const auto& call = calls_[static_cast<size_t>(c)];
      ASSERT_TRUE(call->done());
      if (call->error() != 0) {
        EXPECT_EQ(call->error(), ENOSPC);
        continue;
      }
      const uint64_t at = (nth * 4 + static_cast<uint64_t>(c)) * kBlock;
      const auto read = clients_[0]->call(data_request(Op::read, files_[0], range(at, kBlock)));
      EXPECT_EQ(read->in, block(c, nth));
    }
    calls_.clear();
  }
}

TEST_F(SmallWritesTest, WhatWaitsForAnotherHoldsUpNobodyElse) {
  start(3);
  clients_[0]->auto_pull = false;
  const auto bulk = clients_[0]->send(data_request(Op::write, files_[0], range(0, 2 * kBlock)),
                                      pattern(7, 2 * kBlock), true);
  settle();
  write(1, kBlock, block(1, 0));
  write(2, 2 * kBlock, block(2, 0));
  settle();
  EXPECT_FALSE(calls_[0]->done()) << "overlaps what is under way";
  EXPECT_TRUE(calls_[1]->done());
  while (!clients_[0]->pulls.empty()) {
    clients_[0]->answer(clients_[0]->pulls.front());
    clients_[0]->pulls.pop_front();
  }
  run_all();
  EXPECT_EQ(content(3 * kBlock),
            pattern(7, 2 * kBlock).substr(0, kBlock) + block(1, 0) + block(2, 0));
}

TEST_F(SmallWritesTest, WhoeverLeavesTakesWhatWaitsWithHim) {
  start(3);
  clients_[0]->auto_pull = false;
  const auto bulk = clients_[0]->send(data_request(Op::write, files_[0], range(0, 2 * kBlock)),
                                      pattern(7, 2 * kBlock), true);
  settle();
  write(1, 0, block(1, 0));
  write(2, 0, block(2, 0));
  settle();
  clients_[1]->send_raw(wire::encode_goodbye("bye"));
  clients_[2]->send_raw(wire::encode(wire::Cancel{calls_[1]->message.id}));
  settle();
  ASSERT_TRUE(calls_[1]->done());
  EXPECT_EQ(calls_[1]->error(), ECANCELED);
  while (!clients_[0]->pulls.empty()) {
    clients_[0]->answer(clients_[0]->pulls.front());
    clients_[0]->pulls.pop_front();
  }
  settle();
  EXPECT_TRUE(bulk->done());
  EXPECT_EQ(content(2 * kBlock), pattern(7, 2 * kBlock));
}

TEST_F(SmallWritesTest, AreDoneOnceAcrossALostConnection) {
  start(2);
  hold();
  for (uint64_t k = 0; k < 4; ++k) write_block(1, k);
  settle();
  const size_t under_way = sim_.store->held();
  EXPECT_GT(under_way, 0u);
  clients_[1]->hang_up();
  settle();
  sim_.store->clear();
  sim_.store->release();
  settle();
  const uint64_t before = sim_.store->calls(Op::write);
  ASSERT_TRUE(clients_[1]->resume());
  run_all();
  EXPECT_EQ(sim_.store->calls(Op::write), before) << "remembered, not done again";
}

// A bulk write that has not begun goes to the next server; a small one that follows it must not be
// written by this one, wherever on its way the stop finds it.
TEST(SmallWritesStop, NoneOvertakesWhatIsLeftToTheNextServer) {
  SimOptions slow;
  slow.delay_min = slow.delay_max = 1ms;
  slow.window = 256;  // a small write arrives in pieces
  for (int moment = 0; moment < 20; ++moment) {
    SimServer sim(test_seed(), {}, SimServer::small(), slow);
    auto c = sim.client();
    const OpenFile f = create(*c, "f");
    c->call(data_request(Op::write, f, range(0, 10)), pattern(1, 10));
    sim.store->clear();
    c->auto_pull = false;
    const auto bulk =
        c->send(data_request(Op::write, f, range(0, 2 * kBlock)), pattern(2, 2 * kBlock), true);
    const auto small = c->send(data_request(Op::write, f, range(0, kBlock)), pattern(3, kBlock));
    sim.loop.run_for(moment * 500us);
    bool stopped = false;
    sim.server->stop(100s, [&] { stopped = true; });
    EXPECT_TRUE(sim.loop.run_until([&] { return stopped; }, 50s)) << "stopped after " << moment;
    EXPECT_EQ(sim.store->calls(Op::write), 0u) << "stopped after " << moment;
    EXPECT_FALSE(bulk->done() || small->done());
  }
}

TEST_F(SmallWritesTest, NobodyIsPassedOverForLong) {
  start(2);
  uint64_t answered = 0;
  write_block(1, 1'000);  // far behind all that the other one writes
  const auto far = calls_.back();
  calls_.clear();
  for (uint64_t k = 0; k < 200 && !far->done(); ++k) {
    write_block(0, k);
    clients_[0]->wait(calls_.back());
    answered = k;
  }
  EXPECT_TRUE(far->done());
  EXPECT_LT(answered, 40u);
  run_all();
}

}  // namespace
}  // namespace forebay::server
