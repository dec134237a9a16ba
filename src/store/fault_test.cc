#include "store/fault.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "store/memory.h"

namespace forebay {
namespace {

using Action = FaultRule::Action;

class Fault : public ::testing::Test {
 protected:
  Fault() {
    FaultStore::Scheduler later = [this](Duration by, Task task) {
      delayed.emplace_back(by, std::move(task));
    };
    store = std::make_unique<FaultStore>(std::make_unique<MemoryStore>(), 7, std::move(later));
    top = *store->root();
    Request r = request(Op::create);
    r.name = "f";
    r.access = Access::both;
    const Reply made = *store->call(std::move(r));
    file = made.handle;
    right = made.right;
    store->clear();
  }

  Request request(Op op) {
    Request r;
    r.op = op;
    r.caller = caller;
    r.handle = top;
    return r;
  }
  Request data(Op op, std::span<char> bytes) {
    Request r = request(op);
    r.handle = file;
    r.right = right;
    r.file = Extents(Extent{Offset(0), Length(bytes.size())});
    r.memory = Memory::of(std::as_writable_bytes(bytes));
    return r;
  }
  uint64_t size() {
    Request r = request(Op::getattr);
    r.handle = file;
    return store->call(std::move(r))->attr.size;
  }

  CallerRef caller = this_process_caller();
  std::deque<std::pair<Duration, Task>> delayed;
  std::unique_ptr<FaultStore> store;
  Handle top, file;
  Right right;
};

TEST_F(Fault, FailsTheNthCallOfAKindBeforeItIsDone) {
  store->add({.op = Op::write, .nth = 1, .error = ENOSPC});
  char bytes[10] = {};
  EXPECT_TRUE(store->call(data(Op::write, std::span(bytes, 4))));
  EXPECT_TRUE(store->call(data(Op::read, std::span(bytes, 4))));
  EXPECT_EQ(store->call(data(Op::write, bytes)).error().code(), ENOSPC);
  EXPECT_EQ(size(), 4u);
  EXPECT_TRUE(store->call(data(Op::write, bytes)));
  EXPECT_EQ(store->fired(), 1u);
  EXPECT_EQ(store->calls(Op::write), 3u);
  EXPECT_EQ(store->calls(Op::read), 1u);
  EXPECT_EQ(store->calls(), 5u);  // and one getattr
}

TEST_F(Fault, AnyOperationCounts) {
  store->add({.nth = 1});
  EXPECT_TRUE(store->call(request(Op::getattr)));
  EXPECT_EQ(store->call(request(Op::statfs)).error().code(), EIO);
  EXPECT_TRUE(store->call(request(Op::getattr)));
}

TEST_F(Fault, FailsAfterTheWorkIsDone) {
  store->add({.op = Op::write, .nth = 0, .action = Action::fail_after});
  char bytes[10] = {};
  const auto result = store->call(data(Op::write, bytes));
  EXPECT_EQ(result.error().code(), EIO);
  EXPECT_TRUE(result.error().is_outcome_unknown());
  EXPECT_EQ(size(), 10u);
}

TEST_F(Fault, ShortensAWriteAndSaysHowMuchLanded) {
  store->add(
      {.op = Op::write, .nth = 0, .action = Action::short_write, .error = ENOSPC, .bytes = 3});
  char bytes[10] = {};
  const auto result = store->call(data(Op::write, bytes));
  EXPECT_EQ(result.error().code(), ENOSPC);
  EXPECT_EQ(result.error().done(), 3u);
  EXPECT_EQ(size(), 3u);
}

TEST_F(Fault, ShortensARead) {
  char bytes[10] = {};
  ASSERT_TRUE(store->call(data(Op::write, bytes)));
  store->add({.op = Op::read, .action = Action::short_read, .bytes = 3});
  EXPECT_EQ(store->call(data(Op::read, bytes))->count, 3u);
  EXPECT_EQ(store->call(data(Op::read, std::span(bytes, 2)))->count, 2u);
}

TEST_F(Fault, DelaysByTheScheduler) {
  store->add({.op = Op::getattr, .nth = 0, .action = Action::delay, .delay = Duration(500)});
  bool done = false;
  store->submit(request(Op::getattr), [&](Result<Reply>&& r) { done = r.has_value(); });
  EXPECT_FALSE(done);
  ASSERT_EQ(delayed.size(), 1u);
  EXPECT_EQ(delayed.front().first, Duration(500));
  delayed.front().second();
  EXPECT_TRUE(done);
}

TEST_F(Fault, HoldsUntilReleased) {
  store->add({.op = Op::getattr, .nth = 0, .action = Action::hold});
  bool done = false;
  store->submit(request(Op::getattr), [&](Result<Reply>&& r) { done = r.has_value(); });
  EXPECT_EQ(store->held(), 1u);
  EXPECT_FALSE(done);
  store->release();
  EXPECT_TRUE(done);
}

TEST_F(Fault, DestructionAnswersWhatIsHeld) {
  store->add({.action = Action::hold});
  int done = 0;
  store->submit(request(Op::getattr), [&](Result<Reply>) { ++done; });
  store.reset();
  EXPECT_EQ(done, 1);
}

TEST_F(Fault, DestructionWaitsForWhatIsDelayed) {
  store->add({.action = Action::delay});
  int done = 0;
  store->submit(request(Op::getattr), [&](Result<Reply>) { ++done; });
  std::jthread runner([task = std::move(delayed.front().second)]() mutable { task(); });
  store.reset();
  EXPECT_EQ(done, 1);
}

TEST_F(Fault, ProbabilityRepeatsWithItsSeed) {
  const auto run = [&](uint64_t seed) {
    FaultStore faulty(std::make_unique<MemoryStore>(), seed);
    faulty.add({.probability = 0.3});
    std::string outcome;
    for (int i = 0; i < 200; ++i) {
      Request r = request(Op::getattr);
      r.handle = *faulty.root();
      outcome += faulty.call(std::move(r)) ? '.' : 'x';
    }
    EXPECT_EQ(std::count(outcome.begin(), outcome.end(), 'x'), static_cast<long>(faulty.fired()));
    return outcome;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
  const std::string outcome = run(3);
  const auto failed = std::count(outcome.begin(), outcome.end(), 'x');
  EXPECT_GT(failed, 20);
  EXPECT_LT(failed, 120);
}

}  // namespace
}  // namespace forebay
