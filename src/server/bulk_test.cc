// Bulk data: chunks, lists, order, reservations, resuming in the middle, little memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

std::vector<Extent> random_list(std::mt19937_64& random, size_t pieces, uint64_t space) {
  std::vector<Extent> list;
  for (size_t i = 0; i < pieces; ++i) {
    list.push_back({Offset(random() % space), Length(random() % 64)});
  }
  return list;
}

void apply(std::string& file, const Extents& extents, const std::string& data) {
  size_t at = 0;
  for (ExtentCursor c(extents); !c.done();) {
    const Extent e = c.take(Length(UINT32_MAX));
    if (file.size() < e.end().value) file.resize(e.end().value);
    file.replace(e.offset.value, e.length.value, data, at, e.length.value);
    at += e.length.value;
  }
}

std::string pick(const std::string& file, const Extents& extents) {
  std::string out;
  for (ExtentCursor c(extents); !c.done();) {
    const Extent e = c.take(Length(UINT32_MAX));
    if (e.offset.value >= file.size()) break;
    out += file.substr(e.offset.value, e.length.value);
    if (e.end().value > file.size()) break;
  }
  return out;
}

TEST(Bulk, RandomListsAgainstAnOracle) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  SimServer sim(seed);
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  std::string oracle;
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    Extents extents;
    if (random() % 2) {
      extents = *Extents::make(random_list(random, 1 + random() % 900, 300000));
    } else {
      extents = *Extents::make({{Offset(random() % 1000), Length(1 + random() % 30)}},
                               {{1 + random() % 60, 4000}, {1 + random() % 40, 50}});
    }
    const std::string data = pattern(random(), extents.total().value);
    ASSERT_EQ(c->call(data_request(Op::write, f, extents), data, random() % 2)->reply().count,
              data.size());
    apply(oracle, extents, data);
    const Extents back = *Extents::make(random_list(random, 1 + random() % 1000, 310000));
    const auto got = c->call(data_request(Op::read, f, back));
    const std::string want = pick(oracle, back);
    ASSERT_EQ(got->reply().count, want.size());
    ASSERT_EQ(got->in.substr(0, want.size()), want);
  }
  EXPECT_EQ(read_back(*c, f, 1000000), oracle);
}

TEST(Bulk, LongListsArePulled) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  ExportOptions o = SimServer::small();
  o.pool = 1_MiB;
  SimServer sim(seed, {}, o);
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  std::string oracle;
  for (const size_t pieces : {1500u, 16000u, 3000u}) {
    SCOPED_TRACE(pieces);
    const auto list = random_list(random, pieces, 2000000);
    const Extents extents = *Extents::make(list);
    const std::string data = pattern(random(), extents.total().value);
    auto call = c->send_list(data_request(Op::write, f, {}), list, data);
    ASSERT_EQ(c->wait(call).error(), 0) << call->result->error().message();
    EXPECT_EQ(call->reply().count, data.size());
    apply(oracle, extents, data);
    call = c->send_list(data_request(Op::read, f, {}), list, {});
    EXPECT_EQ(c->wait(call).reply().count, data.size());
    EXPECT_EQ(call->in, pick(oracle, extents));
  }
  EXPECT_EQ(read_back(*c, f, 3000000), oracle);

  // Small data with a long list goes with the request, or with the reply.
  std::vector<Extent> bytes;
  for (uint64_t i = 0; i < 2000; ++i) bytes.push_back({Offset(i * 3), Length(1)});
  auto call = c->send_list(data_request(Op::write, f, {}), bytes, std::string(2000, 'z'), true);
  EXPECT_EQ(c->wait(call).reply().count, 2000u);
  EXPECT_EQ(call->pulls, 2u);  // of the list only
  call = c->send_list(data_request(Op::read, f, {}), bytes, {});
  EXPECT_EQ(c->wait(call).in, std::string(2000, 'z'));
}

TEST(Bulk, BadListsAreRefused) {
  SimServer sim(test_seed());
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  std::vector<Extent> list(c->welcome.max_list_bytes / 16 + 1, {Offset(0), Length(1)});
  auto call = c->send_list(data_request(Op::write, f, {}), list, std::string(list.size(), 'x'));
  EXPECT_EQ(c->wait(call).error(), E2BIG);

  list.resize(1100);
  auto lie = [&](auto change) {
    auto made = std::make_shared<RawClient::Call>();
    made->message.request = data_request(Op::read, f, {});
    made->message.list_blocks = list.size();
    made->message.total = list.size();
    made->message.list_bounds = {Offset(0), Length(100)};
    made->list = list;
    change(*made);
    c->send(made);
    return c->wait(made).error();
  };
  EXPECT_EQ(lie([](auto&) {}), 0);
  EXPECT_EQ(lie([](auto& m) { m.message.total = 7; }), EINVAL);
  EXPECT_EQ(lie([](auto& m) { m.list[50].offset = Offset(100); }), EINVAL);
  EXPECT_EQ(lie([](auto& m) { m.list[50].length = Length(UINT64_MAX); }), EINVAL);
  EXPECT_EQ(lie([](auto& m) { m.list[50].offset = Offset(UINT64_MAX); }), EINVAL);
  EXPECT_EQ(lie([](auto&) {}), 0);
}

// ---- Order ----

TEST(Order, OfOneClientsOverlappingRequests) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  SimServer sim(seed);
  sim.store->add(
      {.op = Op::write, .probability = 0.3, .action = FaultRule::Action::delay, .delay = 3ms});
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  // At its full size from the start: only requests that overlap are ordered, and where the file
  // ends is decided by others as well.
  c->call(data_request(Op::write, f, range(0, 140000)), pattern(0, 140000));
  for (int round = 0; round < 20; ++round) {
    std::string oracle = read_back(*c, f, 1000000);
    struct Expected {
      RawClient::CallRef call;
      std::string want;
    };
    std::vector<Expected> reads;
    for (int i = 0; i < 20; ++i) {
      const uint64_t offset = random() % 50000, size = 1 + random() % (random() % 2 ? 500 : 80000);
      if (random() % 3 == 0) {
        reads.push_back({c->send(data_request(Op::read, f, range(offset, size))),
                         pick(oracle, range(offset, size))});
        continue;
      }
      const std::string data = pattern(random(), size);
      c->send(data_request(Op::write, f, range(offset, size)), data);
      apply(oracle, range(offset, size), data);
    }
    ASSERT_TRUE(sim.loop.run_until([&] { return c->unanswered().empty(); }, 100s));
    for (const auto& [call, want] : reads) {
      ASSERT_EQ(call->reply().count, want.size());
      ASSERT_EQ(call->in.substr(0, want.size()), want);
    }
    ASSERT_EQ(read_back(*c, f, 1000000), oracle);
  }
}

TEST(Order, OverlappingListsOfTwoClientsAreNeverTorn) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  SimServer sim(seed);
  sim.store->add(
      {.op = Op::write, .probability = 0.3, .action = FaultRule::Action::delay, .delay = 2ms});
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  for (int round = 0; round < 20; ++round) {
    const std::string base = pattern(round, 200000);
    a->call(data_request(Op::write, f, range(0, base.size())), base);
    const Extents x = *Extents::make(random_list(random, 1000, base.size() - 64));
    const Extents y = *Extents::make({{Offset(random() % 100), Length(40)}}, {{1000, 150}});
    const std::string dx = pattern(random(), x.total().value),
                      dy = pattern(random(), y.total().value);
    a->send(data_request(Op::write, f, x), dx, true);
    b->send(data_request(Op::write, f, y), dy, true);
    ASSERT_TRUE(sim.loop.run_until(
        [&] { return a->unanswered().empty() && b->unanswered().empty(); }, 100s));
    std::string xy = base, yx = base;
    apply(xy, x, dx), apply(xy, y, dy);
    apply(yx, y, dy), apply(yx, x, dx);
    const std::string got = read_back(*a, f, base.size());
    ASSERT_TRUE(got == xy || got == yx) << "round " << round;
  }
}

TEST(Order, ATruncationWaitsForTheWriteBefore) {
  SimServer sim(test_seed());
  sim.store->add({.op = Op::write, .nth = 0, .action = FaultRule::Action::delay, .delay = 1s});
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  c->send(data_request(Op::write, f, range(0, 100000)), pattern(1, 100000));
  Request r = request(Op::resize, f.handle);
  r.length = Length(10);
  EXPECT_EQ(c->call(r)->reply().attr.size, 10u);
  EXPECT_EQ(read_back(*c, f, 100000), pattern(1, 100000).substr(0, 10));
}

// ---- Errors ----

TEST(BulkErrors, AWriteSaysHowMuchLanded) {
  const uint64_t seed = test_seed();
  for (uint64_t k = 0;; ++k) {
    SCOPED_TRACE(k);
    SimServer sim(seed + k, {}, SimServer::unmerged());
    auto c = sim.client();
    const OpenFile f = create(*c, "f");
    sim.store->add({.op = Op::write,
                    .nth = k,
                    .action = FaultRule::Action::short_write,
                    .error = ENOSPC,
                    .bytes = 1000});
    const std::string data = pattern(k, 200000);
    const auto call = c->call(data_request(Op::write, f, range(0, data.size())), data);
    if (sim.store->fired() == 0) {
      ASSERT_EQ(call->reply().count, data.size());
      break;
    }
    ASSERT_EQ(call->error(), ENOSPC);
    const uint64_t done = call->result->error().done();
    EXPECT_EQ(done, k * 16_KiB + 1000);
    EXPECT_EQ(read_back(*c, f, done), data.substr(0, done));
    // Everything was given back.
    EXPECT_EQ(c->call(data_request(Op::write, f, range(0, data.size())), data)->error(), 0);
  }
}

// A write without the right to it is refused before it reserves anything, so that nobody waits for
// a client that may not write and does not send either.
TEST(BulkErrors, ABadRightHoldsNobodyUp) {
  SimServer sim(test_seed());
  auto a = sim.client("a"), b = sim.client("b");
  const OpenFile f = create(*a, "f");
  Request open = request(Op::open, f.handle);
  open.access = Access::read;
  const OpenFile read_only{f.handle, b->call(open)->reply().right};
  OpenFile forged = f;
  forged.right.bytes[3] ^= 1;
  b->auto_pull = false;
  for (const OpenFile& bad : {read_only, forged}) {
    auto write = b->send(data_request(Op::write, bad, range(0, 100000)), pattern(1, 100000));
    EXPECT_EQ(a->call(data_request(Op::write, f, range(0, 100)), pattern(2, 100))->error(), 0);
    EXPECT_EQ(b->wait(write, 1s).error(), EBADF);
    EXPECT_TRUE(b->pulls.empty());
  }
}

TEST(BulkErrors, AReadFailsWhole) {
  const uint64_t seed = test_seed();
  for (uint64_t k = 0;; ++k) {
    SimServer sim(seed + k, {}, SimServer::unmerged());
    auto c = sim.client();
    const OpenFile f = create(*c, "f");
    const std::string data = pattern(k, 200000);
    c->call(data_request(Op::write, f, range(0, data.size())), data);
    sim.store->add({.op = Op::read, .nth = k, .action = FaultRule::Action::fail_before});
    const auto call = c->call(data_request(Op::read, f, range(0, data.size())));
    if (sim.store->fired() == 0) {
      EXPECT_EQ(call->in, data);
      break;
    }
    ASSERT_EQ(call->error(), EIO);
    sim.store->clear();
    EXPECT_EQ(read_back(*c, f, data.size()), data);
  }
}

TEST(BulkErrors, CancelGivesUpWhatWaits) {
  SimServer sim(test_seed());
  auto c = sim.client();
  const OpenFile f = create(*c, "f");
  c->auto_pull = false;
  auto first = c->send(data_request(Op::write, f, range(0, 50000)), pattern(1, 50000));
  auto second = c->send(data_request(Op::write, f, range(0, 50000)), pattern(2, 50000));
  sim.loop.run_for(1s);
  c->send_raw(wire::encode(wire::Cancel{second->message.id}));
  EXPECT_EQ(c->wait(second).error(), ECANCELED);
  // Under way: what was asked for still has to come.
  c->send_raw(wire::encode(wire::Cancel{first->message.id}));
  sim.loop.run_for(1s);
  EXPECT_FALSE(first->done());
  for (const auto& p : c->pulls) c->answer(p);
  EXPECT_EQ(c->wait(first).error(), ECANCELED);
  EXPECT_EQ(first->result->error().done(), 0u);
  c->auto_pull = true;
  EXPECT_EQ(c->call(data_request(Op::write, f, range(0, 50000)), pattern(3, 50000))->error(), 0);
}

// ---- Resuming in the middle ----

TEST(BulkResume, WriteGoesOnWhereItWas) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    SimServer sim(seed + round, {}, SimServer::unmerged());
    auto c = sim.client();
    const OpenFile f = create(*c, "f");
    const std::string data = pattern(round, 500000);
    auto write = c->send(data_request(Op::write, f, range(0, data.size())), data);
    auto read = c->send(data_request(Op::read, f, range(0, data.size())));
    for (int cuts = 0; cuts < 5; ++cuts) {
      sim.loop.run_for(Duration(random() % 8000000));
      if (read->done()) break;
      ASSERT_TRUE(c->resume());
      ASSERT_TRUE(c->welcome.resumed);
    }
    ASSERT_EQ(c->wait(write).reply().count, data.size());
    ASSERT_EQ(c->wait(read).reply().count, data.size());
    ASSERT_EQ(read->in, data);
    // A chunk that had landed was not written again: at most the one on its way at each cut was.
    EXPECT_EQ(sim.store->calls(Op::write), (data.size() + 16_KiB - 1) / 16_KiB);
  }
}

TEST(BulkResume, ListIsPulledAgain) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  ExportOptions o = SimServer::small();
  o.pool = 1_MiB;
  for (int round = 0; round < 10; ++round) {
    SimServer sim(seed + round, {}, o);
    auto c = sim.client();
    const OpenFile f = create(*c, "f");
    const auto list = random_list(random, 16000, 500000);
    const Extents extents = *Extents::make(list);
    const std::string data = pattern(round, extents.total().value);
    auto write = c->send_list(data_request(Op::write, f, {}), list, data);
    for (int cuts = 0; cuts < 6 && !write->done(); ++cuts) {
      sim.loop.run_for(Duration(random() % 4000000));
      ASSERT_TRUE(c->resume());
    }
    ASSERT_EQ(c->wait(write).reply().count, data.size());
    std::string oracle;
    apply(oracle, extents, data);
    ASSERT_EQ(read_back(*c, f, 1000000), oracle);
  }
}

// ---- Little memory ----

TEST(Pool, ManyClientsThroughFourBuffers) {
  ExportOptions o;
  o.name = "main";
  o.chunk = 1_MiB;
  o.pool = 4_MiB;
  SimOptions fast;
  fast.window = 4_MiB;
  SimServer sim(test_seed(), {}, o, fast);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<OpenFile> files;
  const std::string data = pattern(1, 3_MiB);
  for (int i = 0; i < 64; ++i) {
    clients.push_back(sim.client(numbered("c", i)));
    files.push_back(create(*clients.back(), numbered("f", i % 8)));
  }
  for (int i = 0; i < 64; ++i) {
    clients[i]->send(data_request(Op::write, files[i], range((i / 8) * data.size(), data.size())),
                     data);
  }
  EXPECT_TRUE(sim.loop.run_until(
      [&] { return std::ranges::all_of(clients, [](auto& c) { return c->unanswered().empty(); }); },
      1000s));
  EXPECT_EQ(read_back(*clients[0], files[0], data.size()), data);
  EXPECT_EQ(clients[9]->call(request(Op::getattr, files[9].handle))->reply().attr.size,
            8 * data.size());
}

TEST(Pool, ListsAndDataTogether) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  SimServer sim(seed);  // 16 buffers, lists of at most 4096 extents
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<OpenFile> files;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(sim.client(numbered("c", i)));
    files.push_back(create(*clients.back(), "f"));
    for (int k = 0; k < 3; ++k) {
      const auto list = random_list(random, 4000, 100000);
      clients[i]->send_list(data_request(random() % 2 ? Op::write : Op::read, files[i], {}), list,
                            pattern(i, Extents::make(list)->total().value));
      clients[i]->send(data_request(Op::write, files[i], range(random() % 50000, 100000)),
                       pattern(k, 100000));
    }
  }
  EXPECT_TRUE(sim.loop.run_until(
      [&] { return std::ranges::all_of(clients, [](auto& c) { return c->unanswered().empty(); }); },
      1000s));
}

// However many small reads there are at once: those that find no room on the heap go through the
// pool, and none of them waits for one that holds memory already.
TEST(SmallMemory, SmallReadsAreBoundedWhoeverAsks) {
  constexpr uint64_t kSize = 8_KiB;
  ExportOptions o = SimServer::unmerged();
  o.small = 32 * kSize;
  SimServer sim(test_seed(), SimServer::generous(), o);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<OpenFile> files;
  const std::string data = pattern(7, 64 * kSize);
  for (int i = 0; i < 10; ++i) {
    clients.push_back(sim.client(numbered("c", i)));
    files.push_back(create(*clients.back(), "f"));
  }
  ASSERT_EQ(clients[0]
                ->call(data_request(Op::write, files[0], range(0, data.size())), data)
                ->reply()
                .count,
            data.size());
  sim.store->add({.op = Op::read, .action = FaultRule::Action::hold});
  std::vector<RawClient::CallRef> calls;
  for (uint64_t k = 0; k < 64; ++k) {
    for (size_t i = 0; i < clients.size(); ++i) {
      calls.push_back(clients[i]->send(data_request(Op::read, files[i], range(k * kSize, kSize))));
    }
  }
  sim.loop.run_until([] { return false; }, 1s);
  EXPECT_GE(sim.store->held(), 32u);
  EXPECT_LE(sim.store->held(), 32 + o.pool / o.chunk);  // each holds its memory
  clients[3]->hang_up();  // what it held goes back, whether it comes again or not
  sim.store->clear();
  const bool through = sim.loop.run_until(
      [&] {
        sim.store->release();
        return std::ranges::all_of(calls, [&](const auto& call) { return call->done(); }) ||
               std::ranges::all_of(
                   clients, [&](auto& c) { return &c == &clients[3] || c->unanswered().empty(); });
      },
      1000s);
  ASSERT_TRUE(through);
  for (size_t n = 0; n < calls.size(); ++n) {
    if (n % clients.size() == 3) continue;
    EXPECT_EQ(calls[n]->in, data.substr(n / clients.size() * kSize, kSize));
  }
  EXPECT_NE(sim.server->status().find(R"("used": 0)"), std::string::npos);
}

// Nor do the lists that come with requests.
TEST(SmallMemory, ShortListsAreBoundedAndPulledAgain) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  ExportOptions o = SimServer::unmerged();
  o.small = 40000;  // some six lists of 200 extents
  SimServer sim(seed, SimServer::generous(), o);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<RawClient::CallRef> calls;
  std::vector<OpenFile> files;
  std::vector<std::string> oracles(5);
  for (int i = 0; i < 5; ++i) {
    clients.push_back(sim.client(numbered("c", i)));
    files.push_back(create(*clients.back(), numbered("f", i)));
  }
  sim.store->add({.op = Op::write, .action = FaultRule::Action::hold});
  for (int k = 0; k < 20; ++k) {
    for (size_t i = 0; i < clients.size(); ++i) {
      const Extents list =
          *Extents::make(random_list(random, 200, 40000), {{1 + random() % 2, 50000}});
      const std::string data = pattern(random(), list.total().value);
      calls.push_back(
          clients[i]->send(data_request(Op::write, files[i], list), data, random() % 2));
      apply(oracles[i], list, data);
    }
  }
  sim.store->clear();
  ASSERT_TRUE(sim.loop.run_until(
      [&] {
        sim.store->release();
        return std::ranges::all_of(calls, [](const auto& call) { return call->done(); });
      },
      1000s));
  unsigned pulled = 0;
  for (const auto& call : calls) {
    EXPECT_EQ(call->error(), 0);
    pulled += !call->list.empty();
  }
  EXPECT_GT(pulled, 50u);
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_EQ(read_back(*clients[i], files[i], 100000), oracles[i]);
  }
  EXPECT_NE(sim.server->status().find(R"("used": 0)"), std::string::npos);
}

}  // namespace
}  // namespace forebay::server
