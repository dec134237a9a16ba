#include "server/sieved_store.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "core/testing.h"
#include "store/fault.h"
#include "store/memory.h"
#include "store/posix.h"

namespace forebay::server::sieved_store_tests {
namespace {

constexpr SieveOptions kAlways{.call = 1_MiB};

class Sieved : public ::testing::Test {
 protected:
  void make(SieveOptions options, uint64_t buffer = 16_KiB,
            std::unique_ptr<Store> store = nullptr) {
    if (!store) store = std::make_unique<MemoryStore>();
    pool_ = std::make_unique<BufferPool>(4 * buffer, buffer);
    auto fault = std::make_unique<FaultStore>(std::move(store));
    faults_ = fault.get();
    store_ = std::make_unique<SievedStore>(
        std::move(fault), options, *pool_,
        SieveCounters{counters_.get("reads"), counters_.get("writes"), counters_.get("windows"),
                      counters_.get("bytes")});
    create();
  }
  void TearDown() override { store_.reset(); }

  void create() {
    Request r;
    r.op = Op::create;
    r.caller = caller_;
    r.handle = store_->root().value();
    r.name = "f";
    r.mode = 0600;
    r.access = Access::both;
    const Reply made = store_->call(std::move(r)).value();
    handle_ = made.handle;
    right_ = made.right;
  }

  Request request(Op op, Extents file, Memory memory) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle_;
    r.right = right_;
    r.file = std::move(file);
    r.memory = std::move(memory);
    return r;
  }

  void fill(uint64_t size) {
    content_.resize(size);
    for (char& c : content_) c = static_cast<char>(random_());
    const auto bytes = std::as_writable_bytes(std::span(content_));
    store_->call(request(Op::write, Extents(ext(0, size)), Memory::of(bytes))).value();
  }

  // A read into memory of another shape, against what the file holds.
  struct Read {
    std::string bytes, expected;
    Request request;
    uint64_t count = 0;
  };
  Read read_of(Extents file) {
    Read read;
    const uint64_t total = file.total().value, part = random_() % (total + 1);
    read.bytes.reserve(64);  // so that it can be moved
    read.bytes.assign(total, '?');
    read.expected = read.bytes;
    Memory memory{reinterpret_cast<std::byte*>(read.bytes.data()),
                  Extents::make({ext(total - part, part), ext(0, total - part)}).value()};
    bool there = true;
    walk_pairs(file, memory.shape, [&](Extent from, Extent to) {
      for (uint64_t i = 0; there && i < from.length.value; ++i) {
        there = from.offset.value + i < content_.size();
        if (!there) break;
        read.expected[to.offset.value + i] = content_[from.offset.value + i];
        ++read.count;
      }
      return there;
    });
    read.request = request(Op::read, std::move(file), std::move(memory));
    return read;
  }
  void expect_right(Read& read) {
    const auto reply = store_->call(read.request);
    ASSERT_TRUE(reply.has_value()) << reply.error().message();
    EXPECT_EQ(reply->count, read.count);
    EXPECT_TRUE(read.bytes == read.expected);
  }

  Extents random_extents() {
    const uint64_t size = content_.size();
    std::vector<Extent> blocks;
    uint64_t at = random_() % (size + 200);
    for (uint64_t n = 1 + random_() % 12; n > 0; --n) {
      blocks.push_back(ext(at, 1 + random_() % 200));
      at = random_() % 6 ? blocks.back().end().value + random_() % 300 : random_() % (size + 200);
    }
    std::vector<Stride> loops;
    if (random_() % 2)
      loops.push_back({1 + random_() % 20, static_cast<int64_t>(random_() % 3000)});
    return Extents::make(std::move(blocks), std::move(loops)).value();
  }

  // A write of random bytes from memory of another shape; `after` is the file if all of it lands.
  struct Write {
    std::string bytes, after;
    Request request;
  };
  Write write_of(Extents file) {
    Write write;
    const uint64_t total = file.total().value, part = random_() % (total + 1);
    write.bytes.reserve(64);  // so that it can be moved
    for (uint64_t i = 0; i < total; ++i) write.bytes.push_back(static_cast<char>(random_()));
    write.after = content_;
    Memory memory{reinterpret_cast<std::byte*>(write.bytes.data()),
                  Extents::make({ext(total - part, part), ext(0, total - part)}).value()};
    write.after.resize(std::max<uint64_t>(content_.size(), file.bounds().end().value));
    walk_pairs(file, memory.shape, [&](Extent to, Extent from) {
      write.after.replace(to.offset.value, to.length.value,
                          write.bytes.substr(from.offset.value, from.length.value));
      return true;
    });
    write.request = request(Op::write, std::move(file), std::move(memory));
    write.request.owns_holes = true;
    return write;
  }
  std::string content_now() {
    std::string all(content_.size() + 100000, '\0');
    const auto bytes = std::as_writable_bytes(std::span(all));
    const auto r = request(Op::read, Extents(ext(0, all.size())), Memory::of(bytes));
    all.resize(store_->call(r).value().count);
    return all;
  }
  void expect_written(Write& write) {
    const auto reply = store_->call(write.request);
    ASSERT_TRUE(reply.has_value()) << reply.error().message();
    EXPECT_EQ(reply->count, write.bytes.size());
    content_ = content_now();
    EXPECT_EQ(content_.size(), write.after.size());
    EXPECT_TRUE(content_ == write.after);
  }

  Right write_only() {
    Request open = request(Op::open, {}, {});
    open.right = {};
    open.access = Access::write;
    return store_->call(open).value().right;
  }

  uint64_t writes() { return counters_.get("writes").get(); }
  uint64_t reads() { return counters_.get("reads").get(); }

  std::mt19937_64 random_{test_seed()};
  CounterSet counters_;
  CallerRef caller_ = this_process_caller();
  std::unique_ptr<BufferPool> pool_;
  FaultStore* faults_ = nullptr;
  std::unique_ptr<SievedStore> store_;
  Handle handle_;
  Right right_;
  std::string content_;
};

Extents strided(uint64_t first, uint64_t piece, int64_t stride, uint64_t count) {
  return Extents::make({ext(first, piece)}, {{count, stride}}).value();
}

TEST_F(Sieved, OneCallForManyPieces) {
  make({});
  fill(60000);
  faults_->clear();
  Read read = read_of(strided(10, 64, 256, 50));
  expect_right(read);
  EXPECT_EQ(faults_->calls(Op::read), 1u);
  EXPECT_EQ(reads(), 1u);
  EXPECT_EQ(counters_.get("windows").get(), 1u);
  EXPECT_EQ(counters_.get("bytes").get(), 49u * 256 + 64);
  EXPECT_EQ(pool_->in_use(), 0u);
}

TEST_F(Sieved, OffIsOff) {
  make({.reads = false, .call = 1_MiB});
  fill(60000);
  Read read = read_of(strided(10, 64, 256, 50));
  expect_right(read);
  EXPECT_EQ(reads(), 0u);
}

TEST_F(Sieved, ContiguousAndSparseReadsGoAsTheyAre) {
  make({});
  fill(200000);
  Read whole = read_of(Extents(ext(5, 60000)));
  expect_right(whole);
  Read sparse = read_of(strided(0, 64, 16384, 12));
  expect_right(sparse);
  EXPECT_EQ(reads(), 0u);
}

TEST_F(Sieved, TheEndOfFileIsWhereAPlainReadMeetsIt) {
  make(kAlways);
  fill(1000);
  for (uint64_t first = 0; first < 1100; first += 7) {
    Read read = read_of(strided(first, 30, 50, 20));
    expect_right(read);
  }
  EXPECT_GT(reads(), 100u);
}

TEST_F(Sieved, WithoutABufferItIsAPlainRead) {
  make(kAlways);
  fill(60000);
  std::vector<Buffer> all;
  while (Buffer b = pool_->try_take()) all.push_back(std::move(b));
  Read read = read_of(strided(10, 64, 256, 50));
  expect_right(read);
  EXPECT_EQ(reads(), 0u);
}

TEST_F(Sieved, RandomReadsAgainstTheFile) {
  for (const uint64_t buffer : {4_KiB, 16_KiB, 64_KiB}) {
    for (const uint64_t call : {uint64_t{0}, uint64_t{100}, uint64_t{700}, 1_MiB}) {
      make({.call = call}, buffer);
      fill(1 + random_() % 60000);
      for (int i = 0; i < 300; ++i) {
        Read read = read_of(random_extents());
        expect_right(read);
      }
      EXPECT_EQ(pool_->in_use(), 0u);
      store_.reset();
    }
  }
  EXPECT_GT(reads(), 500u);
}

// A window that cannot be read is nobody's loss.
TEST_F(Sieved, AnErrorOfAnyStepIsMadeGoodByAPlainRead) {
  make({.call = 700}, 4_KiB);
  fill(60000);
  for (int i = 0; i < 50; ++i) {
    const Extents file = random_extents();
    for (uint64_t k = 0;; ++k) {
      faults_->clear();
      faults_->add({.op = Op::read, .nth = k});
      Read read = read_of(file);
      const uint64_t before = reads();
      const auto reply = store_->call(read.request);
      const bool sieved = reads() > before;
      if (reply) {
        EXPECT_EQ(reply->count, read.count);
        EXPECT_TRUE(read.bytes == read.expected);
      } else {
        EXPECT_FALSE(sieved) << "a plain read has its own error";
        EXPECT_EQ(reply.error().code(), EIO);
      }
      if (faults_->fired() == 0) break;
    }
  }
  EXPECT_EQ(pool_->in_use(), 0u);
}

TEST_F(Sieved, APlainReadsErrorIsTheErrorOfTheRead) {
  make(kAlways);
  fill(60000);
  faults_->add({.op = Op::read, .error = EIO});
  Read read = read_of(strided(10, 64, 256, 50));
  const auto reply = store_->call(read.request);
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code(), EIO);
  EXPECT_EQ(pool_->in_use(), 0u);
  right_.bytes = "forged";
  faults_->clear();
  Read forged = read_of(strided(10, 64, 256, 50));
  EXPECT_EQ(store_->call(forged.request).error().code(), EBADF);
}

TEST_F(Sieved, MalformedRequestsAreAnsweredByTheStore) {
  make(kAlways);
  fill(1000);
  Read read = read_of(strided(0, 10, 20, 10));
  read.request.memory.shape = Extents(ext(0, 5));
  EXPECT_FALSE(store_->call(read.request).has_value());
  read.request.memory.shape = Extents(ext(0, 100));
  read.request.caller = nullptr;
  EXPECT_FALSE(store_->call(read.request).has_value());
}

TEST_F(Sieved, ACancelledReadIsNotRepeated) {
  make(kAlways);
  fill(60000);
  faults_->clear();
  std::stop_source stop;
  stop.request_stop();
  Read read = read_of(strided(10, 64, 256, 50));
  read.request.stop = stop.get_token();
  EXPECT_EQ(store_->call(read.request).error().code(), ECANCELED);
  EXPECT_EQ(faults_->calls(Op::read), 1u);
}

// The store goes while a read is half done: what has been handed to the back end ends, no more is.
TEST_F(Sieved, IsDestroyedWithReadsUnderWay) {
  make(kAlways, 4_KiB);
  fill(60000);
  faults_->add({.op = Op::read, .action = FaultRule::Action::hold});
  Read read = read_of(strided(10, 64, 256, 50));
  std::optional<Result<Reply>> result;
  store_->submit(Request(read.request), [&](Result<Reply>&& r) { result.emplace(std::move(r)); });
  EXPECT_EQ(faults_->held(), 1u);
  store_.reset();
  ASSERT_TRUE(result.has_value());
  ASSERT_FALSE(result->has_value());
  EXPECT_EQ(result->error().code(), ESHUTDOWN);
  EXPECT_EQ(pool_->in_use(), 0u);
}

// ---- Writes ----

TEST_F(Sieved, AWriteIsOneReadAndOneWrite) {
  make({});
  fill(60000);
  faults_->clear();
  Write write = write_of(strided(10, 64, 256, 50));
  store_->call(write.request).value();
  EXPECT_EQ(faults_->calls(Op::read), 1u);
  EXPECT_EQ(faults_->calls(Op::write), 1u);
  EXPECT_EQ(writes(), 1u);
  EXPECT_TRUE(content_now() == write.after);
  EXPECT_EQ(pool_->in_use(), 0u);
}

TEST_F(Sieved, AWriteThatDoesNotOwnItsHolesIsLeftAlone) {
  make(kAlways);
  fill(60000);
  Write write = write_of(strided(10, 64, 256, 50));
  write.request.owns_holes = false;
  expect_written(write);
  EXPECT_EQ(writes(), 0u);
}

// Nothing that was not written is in the file, nor makes it longer.
TEST_F(Sieved, BeyondTheEndOfFilePiecesAreWrittenAlone) {
  make(kAlways);
  fill(1000);
  for (uint64_t first = 0; first < 3000; first += 97) {
    Write write = write_of(strided(first, 30, 50, 20));
    expect_written(write);
  }
  EXPECT_GT(writes(), 20u);
}

TEST_F(Sieved, RandomWritesAgainstTheFile) {
  for (const uint64_t buffer : {4_KiB, 16_KiB, 64_KiB}) {
    for (const uint64_t call : {uint64_t{0}, uint64_t{100}, uint64_t{700}, 1_MiB}) {
      make({.call = call}, buffer);
      fill(1 + random_() % 60000);
      for (int i = 0; i < 100; ++i) {
        Write write = write_of(random_extents());
        expect_written(write);
      }
      EXPECT_EQ(pool_->in_use(), 0u);
      store_.reset();
    }
  }
  EXPECT_GT(writes(), 200u);
}

// Whatever call fails, the result is that of the plain write, and the holes are as they were.
TEST_F(Sieved, AnErrorOfAnyCallOfAWriteIsMadeGoodByAPlainWrite) {
  make({.call = 700}, 4_KiB);
  fill(60000);
  using A = FaultRule::Action;
  for (int i = 0; i < 60; ++i) {
    const Extents file = random_extents();
    for (uint64_t k = 0;; ++k) {
      faults_->clear();
      Write write = write_of(file);
      const bool short_one = random_() % 2;
      faults_->add({.op = short_one ? std::optional(Op::write) : std::nullopt,
                    .nth = k,
                    .action = short_one ? A::short_write : A::fail_before,
                    .error = ENOSPC,
                    .bytes = random_() % 500});
      const uint64_t before = writes();
      const auto reply = store_->call(write.request);
      const bool sieved = writes() > before;
      const bool fired = faults_->fired() > 0;
      faults_->clear();
      EXPECT_TRUE(reply.has_value() || !sieved);
      content_ = content_now();
      if (reply) {
        EXPECT_TRUE(content_ == write.after);
      } else {
        EXPECT_EQ(reply.error().code(), ENOSPC);
      }
      if (!fired) break;
    }
  }
  EXPECT_EQ(pool_->in_use(), 0u);
}

// A full disk: every write stops after so many bytes. What is reported is in the file, and no hole
// is changed.
TEST_F(Sieved, AFullDiskIsReportedAsByAPlainWrite) {
  make(kAlways, 4_KiB);
  fill(20000);
  for (const uint64_t room : {0, 1, 63, 64, 65, 500}) {
    Write write = write_of(strided(100, 64, 256, 50));
    faults_->add({.op = Op::write,
                  .action = FaultRule::Action::short_write,
                  .error = ENOSPC,
                  .bytes = room});
    const auto reply = store_->call(write.request);
    faults_->clear();
    ASSERT_FALSE(reply.has_value());
    EXPECT_EQ(reply.error().code(), ENOSPC);
    EXPECT_EQ(reply.error().done(), room);
    const std::string now = content_now();
    ASSERT_EQ(now.size(), content_.size());
    for (size_t i = 0; i < now.size(); ++i) {
      const bool hole = i < 100 || (i - 100) % 256 >= 64 || (i - 100) / 256 >= 50;
      ASSERT_TRUE(now[i] == write.after[i] || (!hole && now[i] == content_[i])) << i;
    }
    content_ = now;
  }
  EXPECT_GT(writes(), 0u);
}

TEST_F(Sieved, ARightThatOnlyWritesWritesPlainly) {
  make(kAlways);
  fill(60000);
  const Right both = std::exchange(right_, write_only());
  Write write = write_of(strided(10, 64, 256, 50));
  const auto reply = store_->call(write.request);
  ASSERT_TRUE(reply.has_value()) << reply.error().message();
  right_ = both;
  EXPECT_TRUE(content_now() == write.after);
}

TEST_F(Sieved, OnlyWritesThatTheExportAllowsAndThatMayReadAskForTheirHoles) {
  make({});
  const SieveOptions on{.writes = When::always};
  Request r = request(Op::write, strided(0, 64, 256, 50), {});
  EXPECT_FALSE(sieves({}, *store_, *pool_, r));
  EXPECT_TRUE(sieves(on, *store_, *pool_, r));
  r.file = strided(0, 64, 65536, 50);
  EXPECT_FALSE(sieves(on, *store_, *pool_, r)) << "sparse";
  r.file = Extents(ext(0, 100));
  EXPECT_FALSE(sieves(on, *store_, *pool_, r)) << "contiguous";
  r.file = strided(0, 64, 256, 50);
  r.right = write_only();
  EXPECT_FALSE(sieves(on, *store_, *pool_, r));
}

TEST_F(Sieved, OfWritesTheClientsWishCountsWhereTheExportLetsIt) {
  make({});
  Request r = request(Op::write, strided(0, 64, 256, 50), {});
  const auto sieved = [&](When writes, uint32_t flags) {
    r.flags = flags;
    return sieves({.writes = writes}, *store_, *pool_, r);
  };
  for (const uint32_t flags : {0u, uint32_t{kFlagSieve}, uint32_t{kFlagNoSieve}})
    EXPECT_FALSE(sieved(When::never, flags));
  r.file = strided(0, 64, 8192, 50);
  EXPECT_FALSE(sieved(When::always, 0)) << "not at this price";
  EXPECT_TRUE(sieved(When::always, kFlagSieve));
  EXPECT_TRUE(sieved(When::asked, kFlagSieve));
  r.length = Length(4096);
  EXPECT_FALSE(sieved(When::asked, kFlagSieve)) << "a hole is larger than a window";
  r.length = {};
  r.file = strided(0, 64, 256, 50);
  EXPECT_TRUE(sieved(When::always, 0));
  EXPECT_FALSE(sieved(When::always, kFlagNoSieve));
  EXPECT_FALSE(sieved(When::asked, 0));
  EXPECT_FALSE(sieved(When::asked, kFlagNoSieve));
}

TEST_F(Sieved, TheClientBoundsTheWindows) {
  make({}, 16_KiB);
  fill(60000);
  faults_->clear();
  Write write = write_of(strided(10, 64, 256, 64));
  write.request.flags = kFlagSieve;
  write.request.length = Length(4096);
  expect_written(write);
  EXPECT_EQ(counters_.get("windows").get(), 4u);
  EXPECT_EQ(counters_.get("bytes").get(), 4u * (15 * 256 + 64));
}

TEST_F(Sieved, RandomWritesThatAskForItAgainstTheFile) {
  for (const uint64_t buffer : {4_KiB, 64_KiB}) {
    make({}, buffer);
    fill(1 + random_() % 60000);
    for (int i = 0; i < 200; ++i) {
      Write write = write_of(random_extents());
      write.request.flags = kFlagSieve;
      write.request.length = Length(random_() % 3 ? 1 + random_() % 8000 : 0);
      expect_written(write);
    }
    EXPECT_EQ(pool_->in_use(), 0u);
    store_.reset();
  }
  EXPECT_GT(writes(), 150u);
}

// ---- Threads ----

// Steps that complete on other threads, from several at once.
TEST_F(Sieved, OnAStoreWithThreads) {
  TempDir dir;
  CounterSet counters;
  PosixOptions options;
  options.directory = dir.path();
  options.force_pool = true;
  options.threads = 3;
  make({.call = 700}, 4_KiB, PosixStore::open(options, counters).value());
  EXPECT_GT(store_->concurrency(), 0u);
  fill(50000);
  std::vector<Read> all;
  for (int i = 0; i < 300; ++i) all.push_back(read_of(random_extents()));
  std::atomic<size_t> next{0}, good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < all.size();) {
        const auto reply = store_->call(all[i].request);
        good += reply && reply->count == all[i].count && all[i].bytes == all[i].expected;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, all.size());
  EXPECT_GT(reads(), 50u);
  store_.reset();  // before its directory
}

}  // namespace
}  // namespace forebay::server::sieved_store_tests
