#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "core/testing.h"

namespace forebay::plan {
namespace {

using Ids = std::vector<uint64_t>;

Descriptor at(uint64_t id, uint64_t offset, uint64_t length = 10, QueueId queue = 0,
              uint64_t client = 0) {
  return {.id = id,
          .queue = queue,
          .write = queue % 2 == 1,
          .client = client,
          .bounds = {Offset(offset), Length(length)},
          .bytes = length};
}

ScheduleOptions free_running() {
  ScheduleOptions o;
  o.writes = Gather::never;
  return o;
}

// The next batch, which comes back at once; empty if there is none.
Ids next(Schedule& s) {
  Schedule::Batch batch;
  if (!s.next(batch)) return {};
  s.ended(batch.queue, batch.run);
  return batch.ids;
}

TEST(Schedule, FifoKeepsTheOrderAndMergesNothing) {
  Schedule s(free_running());
  s.use(Policy::fifo);
  for (uint64_t i : {5, 3, 4, 9}) s.add(at(i, i * 10, 10, i % 2));
  for (uint64_t i : {5, 3, 4, 9}) EXPECT_EQ(next(s), Ids{i});
  EXPECT_EQ(next(s), Ids{});
}

TEST(Schedule, HbrrMergesAndTakesTheLowestFirst) {
  Schedule s(free_running());
  for (uint64_t i : {5, 3, 4, 9}) s.add(at(i, i * 10));
  EXPECT_EQ(next(s), (Ids{3, 4, 5}));
  s.add(at(1, 10));
  EXPECT_EQ(next(s), Ids{1});
  EXPECT_EQ(next(s), Ids{9});
}

TEST(Schedule, HandlesTakeTurnsByQuantumWhichSpillsOver) {
  ScheduleOptions o = free_running();
  o.quantum = 3;
  Schedule s(o);
  for (uint64_t i = 0; i < 2; ++i) s.add(at(i, i * 100, 10, 0));       // two
  for (uint64_t i = 10; i < 15; ++i) s.add(at(i, i * 100, 10, 2));     // five
  for (uint64_t i = 20; i < 22; ++i) s.add(at(i, i * 100, 10, 4, 1));  // two, of another client
  Ids all;
  for (Ids one = next(s); !one.empty(); one = next(s)) {
    ASSERT_EQ(one.size(), 1u);
    all.push_back(one[0]);
  }
  // 0 and 1 leave one of the quantum to the next handle, which then goes to the end of the line.
  // The batch after each quantum is a client's: 11 is the oldest of client 0.
  EXPECT_EQ(all, (Ids{0, 1, 10, 11, 20, 21, 12, 13, 14}));
}

TEST(Schedule, ReadsAndWritesStayApart) {
  Schedule s(free_running());
  s.add(at(1, 0, 10, 0));
  s.add(at(2, 10, 10, 1));
  EXPECT_EQ(next(s), Ids{1});
  EXPECT_EQ(next(s), Ids{2});
}

TEST(Schedule, GathersWhileItsHandleIsBusy) {
  Schedule s(ScheduleOptions{});
  Schedule::Batch batch;
  s.add(at(1, 10, 10, 1));
  ASSERT_TRUE(s.next(batch));
  s.add(at(2, 20, 10, 1));
  s.add(at(3, 30, 10, 1));
  s.add(at(4, 0, 10, 3));
  ASSERT_EQ(next(s), Ids{4}) << "another handle is not held up";
  Schedule::Batch none;
  ASSERT_FALSE(s.next(none));
  s.ended(batch.queue);
  EXPECT_EQ(next(s), (Ids{2, 3}));
}

TEST(Schedule, GathersWhereItPays) {
  ScheduleOptions o;
  o.writes = Gather::useful;
  o.full = 100;
  Schedule s(o);
  Schedule::Batch batch;
  for (uint64_t i = 0; i < 8; ++i) {
    s.add(at(i, i * 100, 10, 1));
    ASSERT_TRUE(s.next(batch)) << "nothing touches, so nothing waits";
  }
  for (int i = 0; i < 8; ++i) s.ended(1);
  for (int round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 5; ++i) s.add(at(i, i * 10, 10, 1));
    ASSERT_EQ(next(s).size(), 5u);
  }
  s.add(at(1, 0, 10, 1));
  ASSERT_TRUE(s.next(batch));
  s.add(at(2, 10, 10, 1));
  ASSERT_FALSE(s.next(batch)) << "waiting has paid";
  s.add(at(3, 20, 90, 1));
  ASSERT_TRUE(s.next(batch)) << "but not for more than a full batch";
}

// Three runs of five, so that merging has paid.
void make_it_pay(Schedule& s, QueueId queue) {
  for (int round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 5; ++i) s.add(at(i, i * 10, 10, queue));
    Schedule::Batch batch;
    for (size_t out = 0; out < 5; out += batch.ids.size()) {
      ASSERT_TRUE(s.next(batch));
      s.ended(batch.queue, batch.run);
    }
  }
}

TEST(Schedule, ALongReadGoesOutInPartsWithNothingBetween) {
  ScheduleOptions o;
  o.reads = o.writes = Gather::useful;
  o.part = 20;
  Schedule s(o);
  make_it_pay(s, 0);
  make_it_pay(s, 1);
  for (uint64_t i = 0; i < 7; ++i) s.add(at(i, i * 10));
  s.add(at(7, 70, 25));  // larger than a part: one of its own
  s.add(at(20, 0, 10, 2));
  Schedule::Batch batch;
  for (const Ids& part : {Ids{0, 1}, Ids{2, 3}, Ids{4, 5}, Ids{6}, Ids{7}}) {
    ASSERT_TRUE(s.next(batch));
    EXPECT_EQ(batch.ids, part);
    EXPECT_FALSE(s.idle(0));
  }
  EXPECT_EQ(next(s), Ids{20}) << "then it is another handle's turn";
  for (uint64_t i = 0; i < 7; ++i) s.add(at(30 + i, i * 10, 10, 1));
  EXPECT_EQ(next(s).size(), 7u) << "a write is not cut";
}

TEST(Schedule, TheNextRunGoesOutWhenHalfOfTheLastIsBack) {
  ScheduleOptions o;
  o.reads = Gather::useful;
  o.part = 10;
  Schedule s(o);
  make_it_pay(s, 0);
  Schedule::Batch batch;
  for (uint64_t i = 0; i < 4; ++i) s.add(at(i, i * 10));
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(s.next(batch));
  const uint32_t first = batch.run;
  s.add(at(8, 80));
  s.ended(0, first);
  EXPECT_FALSE(s.next(batch));
  s.ended(0, first);
  EXPECT_TRUE(s.next(batch));
  EXPECT_EQ(batch.ids, Ids{8});
  s.add(at(9, 90));
  s.ended(0, first);
  EXPECT_FALSE(s.next(batch)) << "the last run is one part, which is out";
  s.ended(0, batch.run);
  EXPECT_TRUE(s.next(batch)) << "what is left of the first one holds up nobody";
}

TEST(Schedule, PartsCountAsInService) {
  ScheduleOptions o;
  o.reads = Gather::useful;
  o.part = 10;
  o.in_service = 2;
  Schedule s(o);
  for (uint64_t i = 0; i < 3; ++i) s.add(at(i, i * 10));
  Schedule::Batch batch;
  ASSERT_TRUE(s.next(batch));
  ASSERT_TRUE(s.next(batch));
  ASSERT_FALSE(s.next(batch));
  EXPECT_EQ(s.pending(), 1u);
  s.use(Policy::fifo);
  s.add(at(7, 0));
  s.ended(0), s.ended(0);
  EXPECT_FALSE(s.idle(0));
  EXPECT_EQ(next(s), Ids{2}) << "what was begun goes first";
  EXPECT_EQ(next(s), Ids{7});
}

TEST(Schedule, KnowsWhereMoreMayGather) {
  ScheduleOptions o;
  o.reads = Gather::useful;
  o.full = 100;
  Schedule s(o);
  s.add(at(0, 0));
  EXPECT_FALSE(s.may_gather_more()) << "nothing has been merged";
  next(s);
  make_it_pay(s, 0);
  EXPECT_FALSE(s.may_gather_more()) << "there is nothing";
  s.add(at(0, 0));
  EXPECT_TRUE(s.may_gather_more());
  s.add(at(1, 0, 10, 2));
  EXPECT_FALSE(s.may_gather_more()) << "another handle would wait for nothing";
  while (!next(s).empty()) continue;
  for (uint64_t i = 0; i < 10; ++i) s.add(at(i, i * 10));
  EXPECT_FALSE(s.may_gather_more()) << "it is full";
}

TEST(Schedule, LimitsWhatIsInService) {
  ScheduleOptions o = free_running();
  o.in_service = 2;
  Schedule s(o);
  Schedule::Batch batch;
  for (uint64_t i = 0; i < 3; ++i) s.add(at(i, i * 100));
  ASSERT_TRUE(s.next(batch));
  ASSERT_TRUE(s.next(batch));
  ASSERT_FALSE(s.next(batch));
  s.ended(batch.queue);
  ASSERT_TRUE(s.next(batch));
}

TEST(Schedule, AChangeOfPolicyLosesNothing) {
  Schedule s(free_running());
  s.add(at(2, 20)), s.add(at(1, 10));
  s.use(Policy::fifo);
  s.add(at(0, 0)), s.add(at(3, 30));
  s.use(Policy::hbrr);
  s.add(at(4, 40));
  s.use(Policy::fifo);
  Ids all;
  for (Ids one = next(s); !one.empty(); one = next(s))
    all.insert(all.end(), one.begin(), one.end());
  EXPECT_EQ(std::set<uint64_t>(all.begin(), all.end()).size(), 5u);
  EXPECT_EQ(s.pending(), 0u);
}

// ---- Against what the header promises, on random loads ----

struct RandomLoad {
  Schedule& schedule;
  std::mt19937_64& random;
  const ScheduleOptions& options;
  const bool changing;  // now and then fifo, which does not gather
  std::map<uint64_t, Descriptor> pending = {};
  std::vector<QueueId> out = {};
  uint64_t last = 0;

  void add() {
    Descriptor d = at(++last, random() % 4000, 1 + random() % 20,
                      static_cast<QueueId>(random() % 6), random() % 5);
    d.pieces = random() % 10 ? 1 + random() % 3 : 0;
    schedule.add(d);
    pending.emplace(d.id, d);
  }

  void take() {
    Schedule::Batch batch;
    if (!schedule.next(batch)) {
      ASSERT_TRUE(pending.empty() || !out.empty()) << "idle with work";
      return;
    }
    out.push_back(batch.queue);
    if (options.in_service) {
      ASSERT_LE(out.size(), options.in_service);
    }
    if (!changing && batch.queue % 2 == 1) {
      ASSERT_EQ(std::ranges::count(out, batch.queue), 1) << "writes of a handle, one at a time";
    }
    check(batch);
  }

  void check(const Schedule::Batch& batch) {
    ASSERT_FALSE(batch.ids.empty());
    ASSERT_LE(batch.ids.size(), options.quantum);
    Offset end;
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      const auto found = pending.find(batch.ids[i]);
      ASSERT_NE(found, pending.end()) << "handed out twice, or never added";
      const Descriptor& d = found->second;
      ASSERT_EQ(d.queue, batch.queue);
      ASSERT_TRUE(i == 0 || (d.bounds.offset <= end && d.pieces > 0));
      end = std::max(end, d.bounds.end());
      pending.erase(found);
    }
  }

  void end_one() {
    if (out.empty()) return;
    std::swap(out[random() % out.size()], out.back());
    schedule.ended(out.back());
    out.pop_back();
  }
};

TEST(Schedule, EveryRequestGoesOutOnceOfEveryLoad) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 100; ++round) {
    ScheduleOptions o;
    o.quantum = 1 + random() % 40;
    o.merger = random() % 2 ? Merger::Kind::tree : Merger::Kind::brute;
    o.in_service = random() % 2 ? 1 + random() % 5 : 0;
    o.reads = random() % 2 ? Gather::useful : Gather::never;
    Schedule s(o);
    const bool changing = random() % 4 == 0;
    RandomLoad model{s, random, o, changing};
    for (int step = 0; step < 1000; ++step) {
      switch (random() % 6) {
        case 0:
        case 1:
        case 2:
          model.add();
          break;
        case 3:
          model.take();
          break;
        case 4:
          model.end_one();
          break;
        default:
          if (changing && model.out.empty()) s.use(random() % 2 ? Policy::fifo : Policy::hbrr);
      }
      ASSERT_FALSE(HasFatalFailure()) << "round " << round << " step " << step;
      ASSERT_EQ(s.pending(), model.pending.size());
      ASSERT_EQ(s.in_service(), model.out.size());
    }
    while (!model.pending.empty()) {
      model.take();
      ASSERT_FALSE(HasFatalFailure());
      model.end_one();
    }
  }
}

// ---- Fairness ----

// Batches until the request of a quiet client goes out, while another keeps the schedule full.
template <class Flood>
unsigned batches_until_served(Schedule& s, const Descriptor& quiet, Flood&& flood) {
  uint64_t id = 1000;
  for (int i = 0; i < 5000; ++i) flood(id++);
  s.add(quiet);
  for (unsigned batches = 1; batches < 100000; ++batches) {
    const Ids ids = next(s);
    if (std::ranges::count(ids, quiet.id)) return batches;
    for (size_t n = 0; n < ids.size() + 1; ++n) flood(id++);
  }
  return UINT_MAX;
}

constexpr unsigned kTurn = Schedule::kBatchesPerClientTurn + 1;

TEST(Schedule, AFloodOfOneHandleStarvesNobody) {
  Schedule s(free_running());
  uint64_t offset = 1'000'000'000;
  const unsigned waited = batches_until_served(s, at(1, 2 * offset, 10, 0, 7), [&](uint64_t id) {
    s.add(at(id, offset -= 20, 10, 0, 8));  // always lower than what waits
  });
  EXPECT_LE(waited, 2 * kTurn);
}

TEST(Schedule, AFloodOfManyHandlesStarvesNobody) {
  std::mt19937_64 random(test_seed());
  Schedule s(free_running());
  const unsigned waited = batches_until_served(s, at(1, 0, 10, 9999, 7), [&](uint64_t id) {
    s.add(at(id, random() % 100000, 10, static_cast<QueueId>(random() % 5000), 8));
  });
  EXPECT_LE(waited, 2 * kTurn);
}

TEST(Schedule, OneSpotWrittenAgainAndAgainStarvesNobody) {
  Schedule s(free_running());
  const unsigned waited = batches_until_served(s, at(1, 0, 10, 0, 7), [&](uint64_t id) {
    Descriptor d = at(id, 500, 10, 0, 8);
    d.pieces = 0;
    s.add(d);
  });
  EXPECT_LE(waited, 2 * kTurn);
}

TEST(Schedule, ManyHostileClientsCostTheirNumber) {
  Schedule s(free_running());
  uint64_t offset = 1'000'000'000;
  const unsigned waited = batches_until_served(s, at(1, 2 * offset, 10, 0, 7), [&](uint64_t id) {
    s.add(at(id, offset -= 20, 10, 0, 100 + id % 30));
  });
  EXPECT_LE(waited, 31 * kTurn);
}

TEST(Schedule, AHandleWhoseStoreHangsHoldsUpNobodyElse) {
  Schedule s(ScheduleOptions{});
  Schedule::Batch hung;
  s.add(at(1, 0, 10, 1, 7));
  ASSERT_TRUE(s.next(hung));
  for (uint64_t i = 0; i < 100; ++i) s.add(at(100 + i, 100 * i, 10, 1, 7));
  s.add(at(2, 0, 10, 3, 7));
  s.add(at(3, 0, 10, 5, 8));
  std::set<uint64_t> served;
  for (Ids ids = next(s); !ids.empty(); ids = next(s)) served.insert(ids.begin(), ids.end());
  EXPECT_EQ(served, (std::set<uint64_t>{2, 3}));
}

}  // namespace
}  // namespace forebay::plan
