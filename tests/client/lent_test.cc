// Writes from memory that a client lends, to a store that fails in the middle of them: what the
// error says was written is what was written, in whatever order the parts end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "client/remote_store.h"
#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/server.h"
#include "store/decorator.h"
#include "store/memory.h"
#include "transport/socket_transport.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kChunk = 16_KiB;
constexpr unsigned kInFlight = 4;

// Gathers writes until as many as may be are there, or nothing more comes, and ends them in any
// order on a thread of its own. A write of a byte that is bad stops before it.
class ShuffledStore final : public Decorator {
 public:
  explicit ShuffledStore(uint64_t seed)
      : Decorator(std::make_unique<MemoryStore>()), random_(seed) {}
  ~ShuffledStore() override {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
    end_inner();
  }

  unsigned concurrency() const override { return kInFlight; }
  void submit(Request&& request, Completion&& done) override {
    if (request.op != Op::write) return inner().submit(std::move(request), std::move(done));
    {
      std::lock_guard lock(mutex_);
      held_.push_back({std::move(request), std::move(done)});
    }
    changed_.notify_one();
  }

  // Places in the file.
  void spoil(std::vector<uint64_t> bad) {
    std::lock_guard lock(mutex_);
    bad_ = std::move(bad);
    most_ = ended_ = ended_full_ = 0;
  }
  // Of the writes, how many ended while as many as may be were here.
  double full() {
    std::lock_guard lock(mutex_);
    return static_cast<double>(ended_full_) / static_cast<double>(ended_);
  }
  size_t most() {  // writes that were here at the same time
    std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  struct Held {
    Request request;
    Completion done;
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !held_.empty(); });
      if (over_) return;
      changed_.wait_for(lock, 2ms, [this] { return held_.size() >= kInFlight; });
      most_ = std::max(most_, held_.size());
      ++ended_;
      ended_full_ += held_.size() == kInFlight;
      std::swap(held_[random_() % held_.size()], held_.back());
      Held one = std::move(held_.back());
      held_.pop_back();
      const std::optional<uint64_t> good = good_part(one.request);
      lock.unlock();
      end(std::move(one), good);
      lock.lock();
    }
  }
  std::optional<uint64_t> good_part(const Request& r) const {  // nothing: all of it
    std::optional<uint64_t> part;
    uint64_t position = 0;
    for (ExtentCursor c(r.file); !c.done() && !part;) {
      const Extent e = c.take(r.file.total());
      for (const uint64_t bad : bad_) {
        if (bad < e.offset.value || bad >= e.end().value) continue;
        part = std::min(part.value_or(r.file.total().value), position + bad - e.offset.value);
      }
      position += e.length.value;
    }
    return part;
  }
  void end(Held one, std::optional<uint64_t> good) {
    if (!good) return one.done(inner().call(std::move(one.request)));
    if (*good > 0) {
      one.request.file = one.request.file.slice(Length(0), Length(*good));
      one.request.memory = one.request.memory.slice(Length(0), Length(*good));
      EXPECT_TRUE(inner().call(std::move(one.request)));
    }
    one.done(Error(ENOSPC, "a bad byte").with_done(*good));
  }

  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> held_;
  std::vector<uint64_t> bad_;
  size_t most_ = 0, ended_ = 0, ended_full_ = 0;
  bool over_ = false;
  std::thread thread_{[this] { run(); }};
};

class LentTest : public ::testing::Test {
 protected:
  LentTest() {
    ExportOptions exported;
    exported.name = "data";
    exported.pool = 16 * kChunk;
    exported.chunk = kChunk;
    exported.in_flight = kInFlight;
    exported.scheduler.policy = SchedulerOptions::Policy::fifo;
    auto shuffled = std::make_unique<ShuffledStore>(random_());
    shuffled_ = shuffled.get();
    server_->add_export(exported, std::move(shuffled)).value();
    listener_ =
        transport_
            .listen({Address::Kind::unix_socket, dir_ / "socket", 0}, loop_,
                    [this](std::unique_ptr<Connection> c) { server_->accept(std::move(c)); })
            .value();
    thread_ = std::make_unique<LoopThread>(loop_);
    connect();
  }
  void connect() {
    RemoteRuntime runtime;
    runtime.lent = 4_MiB;
    runtime.make_loop = [] { return std::make_unique<EpollLoop>(); };
    runtime.make_transport = [](Loop&) {
      return std::make_unique<SocketTransport>(SocketOptions{.shared_area = 4 * kChunk});
    };
    RemoteOptions options;
    options.address = [a = listener_->address()]() -> Result<Address> { return a; };
    options.export_name = "data";
    store_ = RemoteStore::connect(std::move(options), std::move(runtime)).value();
  }

  Reply create(const std::string& name) {
    Request r;
    r.op = Op::create;
    r.handle = store_->root().value();
    r.name = name;
    r.mode = 0600;
    r.access = Access::both;
    r.caller = this_process_caller();
    return store_->call(std::move(r)).value();
  }
  Result<Reply> transfer(Op op, const Reply& file, const Extents& where,
                         std::span<std::byte> memory) {
    Request r;
    r.op = op;
    r.caller = this_process_caller();
    r.handle = file.handle;
    r.right = file.right;
    r.file = where;
    r.memory = Memory::of(memory);
    return store_->call(std::move(r));
  }

  // Fills the memory with what was not there before, and writes it; the oracle is what the file
  // must hold up to what the error says.
  void write_and_check(const Extents& where, std::span<std::byte> memory,
                       std::optional<uint64_t> expected) {
    const Reply file = create(fmt::format("f{}", ++files_));
    for (std::byte& b : memory) b = static_cast<std::byte>(random_() | 1);
    const Result<Reply> wrote = transfer(Op::write, file, where, memory);
    ASSERT_EQ(wrote.has_value(), !expected);
    if (wrote) {
      EXPECT_EQ(wrote->count, memory.size());
    } else {
      EXPECT_EQ(wrote.error().code(), ENOSPC);
      EXPECT_EQ(wrote.error().done(), *expected);
    }
    const uint64_t done = expected.value_or(memory.size());
    if (done == 0) return;
    std::vector<std::byte> in(done);
    const Result<Reply> read = transfer(Op::read, file, where.slice(Length(0), Length(done)), in);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->count, done);
    EXPECT_TRUE(std::equal(in.begin(), in.end(), memory.begin()));
  }

  std::mt19937_64 random_{test_seed()};
  int files_ = 0;
  TempDir dir_;
  CounterSet counters_;
  EpollLoop loop_;
  SocketTransport transport_;
  std::unique_ptr<Server> server_ =
      std::make_unique<Server>(ServerOptions{}, loop_, std::vector<Loop*>{&loop_}, counters_);
  ShuffledStore* shuffled_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<RemoteStore> store_;
};

TEST_F(LentTest, AnErrorInTheMiddleSaysWhatWasWritten) {
  constexpr uint64_t kMost = 20 * kChunk;
  std::byte* const memory = store_->allocate(kMost);
  ASSERT_TRUE(memory);
  size_t most = 0;
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const uint64_t size = kMost - random_() % (4 * kChunk), start = random_() % 5000;
    std::vector<uint64_t> bad;
    for (uint64_t n = random_() % 4; n > 0; --n) bad.push_back(start + random_() % size);
    // At the edges of parts, too.
    if (i % 5 == 0) bad = {start + (1 + random_() % 8) * kChunk - random_() % 2};
    shuffled_->spoil(bad);
    std::optional<uint64_t> expected;
    if (!bad.empty()) expected = *std::ranges::min_element(bad) - start;
    write_and_check(Extents(Extent{Offset(start), Length(size)}), {memory, size}, expected);
    most = std::max(most, shuffled_->most());
  }
  EXPECT_EQ(most, kInFlight) << "parts at the same time";
  EXPECT_GE(store_->stats().lent, 60u);
  EXPECT_TRUE(store_->deallocate(memory));
}

TEST_F(LentTest, ThePartThatEndsIsFollowedByAnother) {
  constexpr uint64_t kSize = 120 * kChunk;
  std::byte* const memory = store_->allocate(kSize);
  ASSERT_TRUE(memory);
  shuffled_->spoil({});
  write_and_check(Extents(Extent{Offset(0), Length(kSize)}), {memory, kSize}, std::nullopt);
  EXPECT_GT(shuffled_->full(), 0.4);  // 0.25: they go in fours
  EXPECT_TRUE(store_->deallocate(memory));
}

TEST_F(LentTest, OfAListOnePartIsUnderWayAtATime) {
  constexpr uint64_t kPieces = 40, kPiece = 4_KiB, kStride = 6_KiB;
  std::byte* const memory = store_->allocate(kPieces * kPiece);
  ASSERT_TRUE(memory);
  const Extents where =
      Extents::make({{Offset(0), Length(kPiece)}}, {{kPieces, int64_t{kStride}}}).value();
  for (uint64_t piece = 0; piece < kPieces; piece += 3) {
    SCOPED_TRACE(piece);
    const uint64_t within = random_() % kPiece;
    shuffled_->spoil({piece * kStride + within});
    write_and_check(where, {memory, kPieces * kPiece}, piece * kPiece + within);
    EXPECT_EQ(shuffled_->most(), 1u);
  }
  EXPECT_TRUE(store_->deallocate(memory));
}

}  // namespace
}  // namespace forebay
