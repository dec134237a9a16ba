#include "server/scheduled_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <semaphore>
#include <thread>

#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "loop/sim_loop.h"
#include "server/merge_keys.h"
#include "store/fault.h"
#include "store/memory.h"
#include "store/posix.h"

namespace forebay::server {
namespace {

using Policy = SchedulerOptions::Policy;

// ---- MergeKeys ----

Request named(const std::string& right, CallerRef caller, Op op = Op::write) {
  Request r;
  r.op = op;
  r.right.bytes = right;
  r.caller = std::move(caller);
  return r;
}

CallerRef user(uint32_t uid) {
  Caller c;
  c.uid = uid;
  return std::make_shared<const Caller>(c);
}

TEST(MergeKeys, AQueueIsAFileACallerAndADirection) {
  MergeKeys keys;
  const auto a = keys.enter(named("r1", user(1)), "f");
  EXPECT_EQ(keys.enter(named("r2", user(1)), "f").queue, a.queue) << "whatever the right";
  EXPECT_NE(keys.enter(named("r1", user(1)), "g").queue, a.queue);
  EXPECT_NE(keys.enter(named("r1", user(2)), "f").queue, a.queue);
  EXPECT_NE(keys.enter(named("r1", user(1), Op::read), "f").queue, a.queue);
}

TEST(MergeKeys, ARightIsProvenWhereItWasAccepted) {
  MergeKeys keys;
  const auto a = keys.enter(named("r", user(1)), "f");
  EXPECT_FALSE(a.proven);
  keys.prove(a.queue, {"r"});
  EXPECT_TRUE(keys.enter(named("r", user(1)), "f").proven);
  EXPECT_FALSE(keys.enter(named("r", user(1)), "g").proven) << "for another file";
  EXPECT_FALSE(keys.enter(named("r", user(2)), "f").proven) << "by another caller";
  EXPECT_FALSE(keys.enter(named("r", user(1), Op::read), "f").proven) << "for reading";
  EXPECT_FALSE(keys.enter(named("s", user(1)), "f").proven) << "another right";
  keys.forget({"r"});
  EXPECT_FALSE(keys.enter(named("r", user(1)), "f").proven) << "closed";
}

TEST(MergeKeys, ANumberThatIsUsedAgainProvesNothing) {
  MergeKeys keys;
  const auto first = keys.enter(named("r", user(1)), "f");
  keys.prove(first.queue, {"r"});
  for (int i = 0; i < 300; ++i) keys.enter(named("x", user(1)), "other" + std::to_string(i));
  keys.leave(first.queue);
  const auto reused = keys.enter(named("r", user(1)), "g");
  ASSERT_EQ(reused.queue, first.queue);
  EXPECT_FALSE(reused.proven);
}

// ---- The store ----

struct File {
  Handle handle;
  Right right;
};

// One request with memory of its own, and what became of it.
struct Call {
  std::string bytes;
  std::optional<Result<Reply>> result;
  int errors() const { return result && !*result ? result->error().code() : 0; }
};
using CallPtr = std::shared_ptr<Call>;

class Scheduled : public ::testing::Test {
 protected:
  void make(SchedulerOptions options = {.policy = Policy::hbrr}) {
    auto fault = std::make_unique<FaultStore>(std::make_unique<MemoryStore>());
    faults_ = fault.get();
    store_ = std::make_unique<ScheduledStore>(std::move(fault), options, pool_);
    file_ = create("f");
    // Its right proves good, for both directions.
    write(0, "x", nullptr);
    read(0, 1, nullptr);
    faults_->clear();
  }

  Reply ok(Request r) {
    r.caller = caller_;
    return store_->call(std::move(r)).value();
  }
  File create(const std::string& name) {
    Request r;
    r.op = Op::create;
    r.handle = store_->root().value();
    r.name = name;
    r.mode = 0600;
    r.access = Access::both;
    const Reply made = ok(std::move(r));
    return {made.handle, made.right};
  }

  Request request(Op op, Extents where, Call& call) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = file_.handle;
    r.right = file_.right;
    r.file = std::move(where);
    r.memory = Memory::of(std::as_writable_bytes(std::span(call.bytes)));
    return r;
  }
  CallPtr submit(Op op, Extents where, std::string bytes, Loop* loop, uint64_t client = 1,
                 std::stop_token stop = {}) {
    auto call = std::make_shared<Call>();
    call->bytes = std::move(bytes);
    Request r = request(op, std::move(where), *call);
    r.stop = std::move(stop);
    store_->submit(std::move(r),
                   [call](Result<Reply>&& result) { call->result.emplace(std::move(result)); },
                   {loop, client});
    return call;
  }
  CallPtr write(uint64_t at, std::string bytes, Loop* loop, uint64_t client = 1) {
    const Extents where(ext(at, bytes.size()));
    return submit(Op::write, where, std::move(bytes), loop, client);
  }
  CallPtr read(uint64_t at, uint64_t length, Loop* loop) {
    return submit(Op::read, Extents(ext(at, length)), std::string(length, '?'), loop);
  }
  std::string content(uint64_t length) {
    auto call = read(0, length, nullptr);
    return call->bytes.substr(0, call->result->value().count);
  }
  void run() {
    while (!loop_.idle()) loop_.run_one(Duration(0));
  }

  CallerRef caller_ = this_process_caller();
  SimLoop loop_{1};
  BufferPool pool_{1_MiB, 64_KiB};
  FaultStore* faults_ = nullptr;
  std::unique_ptr<ScheduledStore> store_;
  File file_;
};

TEST_F(Scheduled, WhatArrivesInOneTurnIsMerged) {
  make();
  std::vector<CallPtr> calls;
  for (uint64_t i : {3, 0, 2, 1}) {
    calls.push_back(write(i * 4, std::string(4, static_cast<char>('a' + i)), &loop_, i));
  }
  EXPECT_EQ(faults_->calls(Op::write), 0u);
  run();
  for (const auto& call : calls) EXPECT_EQ(call->result->value().count, 4u);
  EXPECT_EQ(faults_->calls(Op::write), 1u);
  EXPECT_EQ(content(100), "aaaabbbbccccdddd");
  const SchedulerStatus s = store_->status();
  EXPECT_EQ(s.merged, 4u);
  EXPECT_EQ(s.sizes[2], 1u);
  EXPECT_EQ(s.waiting, 0u);
}

TEST_F(Scheduled, FifoMergesNothingAndWaitsForNothing) {
  make({.policy = Policy::fifo});
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(write(i * 4, "abcd", &loop_)->result.has_value());
  EXPECT_EQ(faults_->calls(Op::write), 4u);
  EXPECT_EQ(store_->status().why, "fifo: as configured");
}

TEST_F(Scheduled, ReadsAreMergedAndShortAtTheEnd) {
  make();
  write(0, "0123456789", nullptr);
  faults_->clear();
  auto a = read(0, 4, &loop_), b = read(2, 4, &loop_), c = read(6, 8, &loop_),
       d = read(14, 2, &loop_);
  run();
  EXPECT_EQ(faults_->calls(Op::read), 1u);
  EXPECT_EQ(a->bytes, "0123");
  EXPECT_EQ(b->bytes, "2345");
  EXPECT_EQ(c->result->value().count, 4u);
  EXPECT_EQ(c->bytes.substr(0, 4), "6789");
  EXPECT_EQ(d->result->value().count, 0u);
}

TEST_F(Scheduled, WritesGatherWhileTheirFileIsBusy) {
  make();
  faults_->add({.op = Op::write, .nth = 0, .action = FaultRule::Action::hold});
  auto first = write(0, "aa", &loop_);
  run();
  std::vector<CallPtr> later;
  for (uint64_t i = 1; i < 5; ++i) {
    later.push_back(write(i * 2, "bb", &loop_));
    run();
  }
  EXPECT_EQ(faults_->calls(Op::write), 1u);
  faults_->release();
  run();
  EXPECT_EQ(faults_->calls(Op::write), 2u);
  for (const auto& call : later) EXPECT_TRUE(call->result->has_value());
  EXPECT_EQ(content(100), "aabbbbbbbb");
}

// A Store with threads of its own, as far as the scheduler can see.
class Pooled final : public Decorator {
 public:
  explicit Pooled(std::unique_ptr<Store> inner) : Decorator(std::move(inner)) {}
  unsigned concurrency() const override { return 8; }
  void submit(Request&& request, Completion&& done) override {
    inner().submit(std::move(request), std::move(done));
  }
};

class ScheduledPooled : public Scheduled {
 protected:
  void SetUp() override {
    auto fault = std::make_unique<FaultStore>(std::make_unique<MemoryStore>());
    faults_ = fault.get();
    store_ = std::make_unique<ScheduledStore>(std::make_unique<Pooled>(std::move(fault)),
                                              SchedulerOptions{.policy = Policy::hbrr}, pool_);
    file_ = create("f");
    write(0, "x", nullptr);
    read(0, 1, nullptr);
    for (int i = 0; i < 4; ++i) {  // merging pays
      for (uint64_t at = 0; at < 4; ++at) write(at * 4, "abcd", &loop_);
      for (uint64_t at = 0; at < 4; ++at) read(at * 4, 4, &loop_);
      run();
    }
    faults_->clear();
  }
};

TEST_F(ScheduledPooled, WaitsWhileTurnsBringOthers) {
  std::vector<CallPtr> calls;
  for (uint64_t i = 0; i < 4; ++i) {
    calls.push_back(read(i * 4, 4, &loop_));
    loop_.run_one(Duration(0));
    EXPECT_EQ(faults_->calls(Op::read), 0u) << i;
  }
  run();
  EXPECT_EQ(faults_->calls(Op::read), 1u);
  for (const auto& call : calls) EXPECT_EQ(call->bytes, "abcd");
}

TEST_F(ScheduledPooled, WaitsForNobodyForEver) {
  const auto first = read(0, 4, &loop_);
  std::vector<CallPtr> others;
  for (uint64_t i = 1; i < 200; ++i) {
    others.push_back(read(i * 100, 4, &loop_));
    loop_.run_one(Duration(0));
  }
  EXPECT_TRUE(first->result.has_value());
  run();
  for (const auto& call : others) EXPECT_TRUE(call->result.has_value());
}

TEST_F(ScheduledPooled, ThoseWhoAreAnsweredTogetherGoTogetherAgain) {
  faults_->add({.op = Op::read, .nth = 0, .action = FaultRule::Action::hold});
  std::vector<CallPtr> calls;
  for (uint64_t i = 0; i < 3; ++i) calls.push_back(read(i * 4, 4, &loop_));
  run();
  EXPECT_EQ(faults_->calls(Op::read), 1u);
  calls.push_back(read(12, 4, &loop_));
  run();
  EXPECT_EQ(faults_->calls(Op::read), 1u) << "it gathers";
  faults_->release();
  for (uint64_t i = 0; i < 3; ++i) calls.push_back(read(i * 4, 4, &loop_));
  run();
  EXPECT_EQ(faults_->calls(Op::read), 2u) << "the one that waited, and those who came again";
  for (const auto& call : calls) EXPECT_EQ(call->bytes, "abcd");
}

TEST_F(ScheduledPooled, ALongMergedReadIsSeveralCalls) {
  constexpr uint64_t kSize = 64_KiB;
  write(0, std::string(8 * kSize, 'z'), nullptr);
  faults_->clear();
  std::vector<CallPtr> calls;
  for (uint64_t i = 0; i < 8; ++i) calls.push_back(read(i * kSize, kSize, &loop_));
  run();
  EXPECT_EQ(faults_->calls(Op::read), 2u);
  for (const auto& call : calls) EXPECT_EQ(call->bytes, std::string(kSize, 'z'));
}

TEST_F(Scheduled, WhenAMergedBatchFailsEachIsDoneAlone) {
  make();
  // The batch fails, and of the four alone the third.
  faults_->add({.op = Op::write, .nth = 0, .action = FaultRule::Action::short_write, .bytes = 6});
  faults_->add({.op = Op::write, .nth = 3, .error = ENOSPC});
  std::vector<CallPtr> calls;
  for (uint64_t i = 0; i < 4; ++i) {
    calls.push_back(write(i * 4, std::string(4, static_cast<char>('a' + i)), &loop_));
  }
  run();
  EXPECT_EQ(faults_->calls(Op::write), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(calls[i]->errors(), i == 2 ? ENOSPC : 0) << i;
  EXPECT_EQ(store_->status().retried, 4u);
  EXPECT_EQ(content(100).substr(12), "dddd");
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(Scheduled, AMergedReadThatFailsIsDoneAlone) {
  make();
  write(0, "0123456789", nullptr);
  faults_->clear();
  faults_->add({.op = Op::read, .nth = 0});
  auto a = read(0, 4, &loop_), b = read(2, 4, &loop_);
  run();
  EXPECT_EQ(a->bytes, "0123");
  EXPECT_EQ(b->bytes, "2345");
}

TEST_F(Scheduled, ACancelledRequestIsNotDone) {
  make();
  std::stop_source stop;
  auto a = write(0, "aa", &loop_);
  auto b = submit(Op::write, Extents(ext(2, 2)), "bb", &loop_, 1, stop.get_token());
  auto c = write(4, "cc", &loop_);
  stop.request_stop();
  run();
  EXPECT_EQ(b->errors(), ECANCELED);
  EXPECT_TRUE(a->result->has_value() && c->result->has_value());
  EXPECT_EQ(content(10), std::string("aa\0\0cc", 6));
}

TEST_F(Scheduled, ARightMustProveItselfBeforeItIsMerged) {
  make();
  file_.right.bytes += "forged";
  auto forged = write(0, "aa", &loop_);
  file_.right.bytes.resize(file_.right.bytes.size() - 6);
  auto good = write(2, "bb", &loop_);
  auto neighbour = write(4, "cc", &loop_);
  run();
  EXPECT_EQ(forged->errors(), EBADF);
  EXPECT_TRUE(good->result->has_value() && neighbour->result->has_value());
  EXPECT_EQ(faults_->calls(Op::write), 2u);
}

TEST_F(Scheduled, OtherRightsAndCallersStayApart) {
  make();
  const Right first = file_.right;
  Request open;
  open.op = Op::open;
  open.handle = file_.handle;
  open.access = Access::both;
  const Right second = ok(std::move(open)).right;
  file_.right = second;
  write(0, "x", nullptr);
  faults_->clear();
  write(0, "aa", &loop_);
  file_.right = first;
  write(2, "bb", &loop_);
  run();
  EXPECT_EQ(faults_->calls(Op::write), 1u) << "two rights of one caller merge";
  const CallerRef own = caller_;
  Caller other = *own;
  other.groups.push_back(4711);
  write(0, "aa", &loop_);
  caller_ = std::make_shared<const Caller>(other);
  write(2, "bb", nullptr);
  caller_ = own;
  run();
  EXPECT_EQ(faults_->calls(Op::write), 3u) << "two callers do not";
}

TEST_F(Scheduled, ManyThatCompleteInlineNeedNoStack) {
  make();
  faults_->add({.op = Op::write, .nth = 0, .action = FaultRule::Action::hold});
  write(0, "a", &loop_);
  run();
  size_t done = 0;
  for (uint64_t i = 1; i < 20000; ++i) {
    auto call = std::make_shared<Call>();
    call->bytes = "b";
    store_->submit(request(Op::write, Extents(ext(i * 2, 1)), *call),
                   [call, &done](Result<Reply>&&) { ++done; }, {&loop_, 1});
  }
  run();
  EXPECT_EQ(done, 0u);
  faults_->release();
  run();
  EXPECT_EQ(done, 19999u);
}

TEST_F(Scheduled, WhatWaitsAtTheEndIsDone) {
  make();
  auto a = write(0, "aa", &loop_), b = write(2, "bb", &loop_);
  store_.reset();
  EXPECT_TRUE(a->result->has_value() && b->result->has_value());
  run();
}

TEST_F(Scheduled, EmptyAndMalformedRequestsAreTheBackEnds) {
  make();
  EXPECT_EQ(read(0, 0, &loop_)->result->value().count, 0u);
  Call call{std::string(3, '?'), {}};
  Request r = request(Op::read, Extents(ext(0, 4)), call);
  EXPECT_EQ(store_->call(std::move(r)).error().code(), EINVAL);
}

// ---- Threads ----

// Each thread has a stripe of the file, in pieces among those of the others, and reads what it
// wrote. Merging must neither lose nor mix anything, whoever fails.
void hammer(ScheduledStore& store, const File& file, unsigned number, unsigned threads,
            uint64_t seed, std::atomic<unsigned>& busy) {
  constexpr uint64_t kPiece = 64, kPieces = 100;
  std::mt19937_64 random(seed + number);
  EpollLoop loop;
  std::vector<std::string> image(kPieces, std::string(kPiece, '\0'));
  const auto caller = this_process_caller();
  unsigned under_way = 0;
  const auto run_until = [&](unsigned most) {
    while (under_way > most) loop.run_one(std::chrono::seconds(1));
  };
  for (int round = 0; round < 150; ++round) {
    const bool writing = random() % 2;
    const uint64_t first = random() % kPieces, count = 1 + random() % 8;
    for (uint64_t i = first; i < std::min(first + count, kPieces); ++i) {
      auto call = std::make_shared<Call>();
      call->bytes.assign(kPiece, static_cast<char>(random()));
      if (writing) image[i] = call->bytes;
      Request r;
      r.op = writing ? Op::write : Op::read;
      r.caller = caller;
      r.handle = file.handle;
      r.right = file.right;
      r.file = Extents(ext((i * threads + number) * kPiece, kPiece));
      r.memory = Memory::of(std::as_writable_bytes(std::span(call->bytes)));
      ++under_way;
      store.submit(std::move(r),
                   [&, call, i, writing](Result<Reply>&& result) {
                     call->result.emplace(std::move(result));
                     loop.post([&, call, i, writing] {
                       --under_way;
                       ASSERT_TRUE(call->result->has_value()) << call->errors();
                       ASSERT_EQ((*call->result)->count, kPiece);
                       if (!writing) {
                         ASSERT_EQ(call->bytes, image[i]);
                       }
                     });
                   },
                   {&loop, number});
    }
    run_until(0);
  }
  // The store may have left it to this loop to serve the others.
  for (--busy; busy > 0;) loop.run_one(std::chrono::milliseconds(1));
}

void hammer_all(std::unique_ptr<Store> below, Policy policy) {
  const uint64_t seed = test_seed();
  BufferPool pool(1_MiB, 64_KiB);
  ScheduledStore store(std::move(below), {.policy = policy, .quantum = 8}, pool);
  Request create;
  create.op = Op::create;
  create.caller = this_process_caller();
  create.handle = store.root().value();
  create.name = "f";
  create.mode = 0600;
  create.access = Access::both;
  const Reply made = store.call(create).value();
  Request resize;
  resize.op = Op::resize;
  resize.caller = create.caller;
  resize.handle = made.handle;
  resize.length = Length(1_MiB);
  ASSERT_TRUE(store.call(resize).has_value());
  {
    std::atomic<unsigned> busy = 4;
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] { hammer(store, {made.handle, made.right}, i, 4, seed, busy); });
    }
  }
  const SchedulerStatus s = store.status();
  EXPECT_EQ(s.waiting + s.in_service, 0u);
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(ScheduledThreads, InlineBackEnd) {
  hammer_all(std::make_unique<MemoryStore>(), Policy::hbrr);
}

TEST(ScheduledThreads, PooledBackEnd) {
  for (const Policy policy : {Policy::hbrr, Policy::automatic, Policy::fifo}) {
    TempDir dir;
    CounterSet counters;
    PosixOptions options;
    options.directory = dir.path();
    options.threads = 3;
    options.force_pool = true;
    hammer_all(PosixStore::open(options, counters).value(), policy);
  }
}

TEST(ScheduledThreads, MergedBatchesThatFailNowAndThen) {
  // A batch whose parts are then done alone must succeed in the end: only merged ones fail.
  class Fussy final : public Store {
   public:
    void submit(Request&& r, Completion&& done) override {
      if (r.file.total().value > 64 && ++calls_ % 3 == 0) return done(Error(EIO));
      memory_.submit(std::move(r), std::move(done));
    }
    Result<Handle> root() override { return memory_.root(); }

   private:
    std::atomic<unsigned> calls_{0};
    MemoryStore memory_;
  };
  hammer_all(std::make_unique<Fussy>(), Policy::hbrr);
}

}  // namespace
}  // namespace forebay::server
