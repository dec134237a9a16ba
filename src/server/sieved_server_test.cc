// Sieving through the whole server: who waits for whom, and that no byte is lost between clients
// whose pieces lie in each other's holes.
#include <gtest/gtest.h>

#include "server/raw_client.h"

namespace forebay::server::sieved_server_tests {
namespace {

ExportOptions sieving(When writes) {
  ExportOptions o = SimServer::small();
  o.sieve.writes = writes;
  return o;
}

Extents strided(uint64_t first, uint64_t piece, int64_t stride, uint64_t count) {
  return Extents::make({ext(first, piece)}, {{count, stride}}).value();
}

// One client's scattered write is held between its read and its write; another writes to a hole.
void write_to_a_hole(When writes, uint32_t flags, bool sieved) {
  ExportOptions exported = sieving(writes);
  exported.scheduler.policy = SchedulerOptions::Policy::fifo;  // what is held holds nothing else up
  SimServer sim(test_seed(), SimServer::generous(), exported);
  const auto a = sim.client("a"), b = sim.client("b");
  const OpenFile file = create(*a, "f");
  std::string content = pattern(1, 4096);
  a->call(data_request(Op::write, file, range(0, content.size())), content);
  const Op first = sieved ? Op::read : Op::write;
  sim.store->clear();
  sim.store->add({.op = first, .nth = 0, .action = FaultRule::Action::hold});
  const std::string scattered = pattern(2, 16 * 64), small = pattern(3, 10);
  Request scatter = data_request(Op::write, file, strided(0, 64, 256, 16));
  scatter.flags = flags;
  const auto wide = a->send(std::move(scatter), scattered);
  sim.loop.run_for(20ms);
  ASSERT_EQ(sim.store->held(), 1u);
  const auto narrow = b->send(data_request(Op::write, file, range(100, 10)), small);
  sim.loop.run_for(20ms);
  EXPECT_EQ(narrow->done(), !sieved) << "it waits only for one that would write it back";
  sim.store->release();
  ASSERT_TRUE(run_until(
      sim.loop, [&] { return wide->done() && narrow->done(); }, 10s));
  for (size_t i = 0; i < 16; ++i) content.replace(i * 256, 64, scattered, i * 64, 64);
  content.replace(100, 10, small);
  EXPECT_TRUE(read_back(*a, file, 5000) == content);
}

TEST(SievedServer, ASievedWriteHasItsHolesForItself) {
  write_to_a_hole(When::always, 0, true);
}
TEST(SievedServer, APlainWriteDoesNot) {
  write_to_a_hole(When::never, 0, false);
}
TEST(SievedServer, SoHasOneThatAsksForIt) {
  write_to_a_hole(When::asked, kFlagSieve, true);
}
TEST(SievedServer, NobodyElseIsSieved) {
  write_to_a_hole(When::asked, 0, false);
  write_to_a_hole(When::always, kFlagNoSieve, false);
  write_to_a_hole(When::never, kFlagSieve, false);
}

// Clients write and read at the same time, each its own bytes, which lie in the holes of the
// others', on a store whose calls take their time.
class Interleaved {
 public:
  Interleaved(ExportOptions exported, uint64_t seed)
      : random_(seed), sim_(seed, SimServer::generous(), std::move(exported)) {
    for (size_t i = 0; i < kClients; ++i) clients_.push_back(sim_.client(numbered("c", int(i))));
    file_ = create(*clients_[0], "f");
    content_ = pattern(seed, 20000 + random_() % 20000);
    clients_[0]->call(data_request(Op::write, file_, range(0, content_.size())), content_, true);
    sim_.store->add({.probability = 0.5, .action = FaultRule::Action::delay, .delay = 1ms});
  }

  void round() {
    piece_ = 1 + random_() % 300;
    calls_.clear();
    for (int i = 0; i < 12; ++i) begin(random_() % kClients);
    ASSERT_TRUE(run_until(
        sim_.loop,
        [&] { return std::ranges::all_of(calls_, [](auto& c) { return c.call->done(); }); }, 60s));
    for (const Sent& c : calls_) {
      ASSERT_EQ(c.call->error(), 0);
      if (!c.read) continue;
      ASSERT_EQ(c.call->reply().count, c.expected.size());
      ASSERT_TRUE(c.call->in.substr(0, c.expected.size()) == c.expected);
    }
    ASSERT_TRUE(read_back(*clients_[0], file_, content_.size() + 100) == content_);
  }
  uint64_t sieved() { return sim_.counters.get("export.main.sieved_writes").get(); }

 private:
  static constexpr uint64_t kClients = 4;
  struct Sent {
    RawClient::CallRef call;
    bool read;
    std::string expected;
  };

  void begin(uint64_t client) {
    const uint64_t stride = kClients * piece_;
    const uint64_t whole = content_.size() / stride;  // strides within the file
    const uint64_t from = random_() % whole;
    const uint64_t count = 1 + random_() % (whole - from);
    const Extents file =
        strided(from * stride + client * piece_, piece_, static_cast<int64_t>(stride), count);
    const bool read = random_() % 3 == 0;
    std::string stream = read ? std::string() : pattern(random_(), file.total().value);
    std::string expected;
    for (ExtentCursor c(file); !c.done();) {
      const uint64_t at = c.position().value;
      const Extent e = c.take(file.total());
      if (read) {
        expected += content_.substr(e.offset.value, e.length.value);
      } else {
        content_.replace(e.offset.value, e.length.value, stream, at, e.length.value);
      }
    }
    auto r = data_request(read ? Op::read : Op::write, file_, file);
    if (!read && random_() % 2) r.flags = random_() % 2 ? kFlagBehind : kFlagStable;
    if (!read && random_() % 2) r.flags |= random_() % 3 ? kFlagSieve : kFlagNoSieve;
    if (!read && random_() % 2) r.length = Length(1 + random_() % 4096);
    const bool bulk = random_() % 2;
    auto call = clients_[client]->send(std::move(r), std::move(stream), bulk);
    calls_.push_back({std::move(call), read, std::move(expected)});
  }

  std::mt19937_64 random_;
  SimServer sim_;
  std::vector<std::unique_ptr<RawClient>> clients_;
  OpenFile file_;
  std::string content_;
  uint64_t piece_ = 1;
  std::vector<Sent> calls_;
};

TEST(SievedServer, NothingIsLostBetweenInterleavedClients) {
  std::mt19937_64 seeds(test_seed());
  uint64_t sieved = 0;
  for (int i = 0; i < 40 && !::testing::Test::HasFatalFailure(); ++i) {
    ExportOptions exported = sieving(i % 5 < 2 ? When::asked : When::always);
    exported.sieve.call = i % 2 ? 1_MiB : 0;
    if (i % 3 == 0) exported.write_behind.when = When::always;
    if (i % 3 == 0) exported.write_behind.memory = 64_KiB;
    if (i % 4 == 0) exported.pool = 4 * exported.chunk;
    Interleaved clients(exported, seeds());
    for (int round = 0; round < 8 && !::testing::Test::HasFatalFailure(); ++round) clients.round();
    sieved += clients.sieved();
  }
  EXPECT_GT(sieved, 200u);
}

}  // namespace
}  // namespace forebay::server::sieved_server_tests
