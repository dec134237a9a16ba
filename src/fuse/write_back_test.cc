#include "fuse/write_back.h"

#include <gtest/gtest.h>

#include <random>

#include "core/testing.h"

namespace forebay::fuse {
namespace {

using namespace std::chrono_literals;

// A file of bytes, and write leases of it.
class WrittenStore final : public Store {
 public:
  void submit(Request&& request, Completion&& done) override {
    Reply reply;
    if (request.op == Op::lease) {
      if (refusal != 0) return done(Error(refusal));
      reply.value = lease = ++last;
      if (std::exchange(recalls_early, false)) holder->recalled(last);
      return done(std::move(reply));
    }
    std::lock_guard lock(mutex);
    if (request.op != Op::write) return done(Error(EINVAL));
    ++writes;
    if (request.cookie != 0 && request.cookie != lease) return done(Error(ESTALE));
    if (failure != 0) return done(Error(failure));
    bytes.resize(std::max<size_t>(bytes.size(), request.file.bounds().end().value));
    uint64_t at = 0;
    for (const Extent& extent : request.file.blocks()) {
      const std::byte* from = request.memory.at(Offset(at));
      std::copy_n(reinterpret_cast<const char*>(from), extent.length.value,
                  bytes.begin() + static_cast<ptrdiff_t>(extent.offset.value));
      at += extent.length.value;
    }
    reply.count = at;
    done(std::move(reply));
  }
  void give_back(uint64_t which) override {
    if (lease == which) lease = 0;
  }
  Duration leases_until() const override { return until; }
  Result<Handle> root() override { return Handle{"root"}; }

  std::mutex mutex;
  std::string bytes;
  int writes = 0, refusal = 0, failure = 0;
  bool recalls_early = false;
  LeaseHolder* holder = nullptr;
  std::atomic<uint64_t> lease{0};
  uint64_t last = 0;
  std::atomic<Duration> until{since_boot() + 1h};
};

class WriteBackTest : public testing::Test {
 protected:
  void SetUp() override {
    store_.holder = &back_;
    back_.start();
    back_.opened_to_write(node_);
  }
  void TearDown() override {
    back_.closed_to_write(node_);
    back_.stop();
  }
  // As the mount does it.
  void write(uint64_t at, std::string_view text, const char* right = "right") {
    const std::span bytes = std::as_bytes(std::span(text));
    if (back_.keep(node_, {{right}, nullptr}, at, bytes)) return void(++kept_);
    back_.settle(node_);
    Request r;
    r.op = Op::write;
    r.file = Extents({Offset(at), Length(text.size())});
    r.memory = Memory::of(bytes);
    EXPECT_TRUE(store_.call(std::move(r)));
  }
  void until_leased() {
    for (int i = 0; i < 10; ++i) write(0, "x");
    ASSERT_NE(store_.lease, 0u);
    back_.settle(node_);
    store_.writes = kept_ = 0;
  }
  template <class Done>
  void wait_for(Done&& done) {
    for (int i = 0; i < 4000 && !done(); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(done());
  }
  std::string stored() {
    std::lock_guard lock(store_.mutex);
    return store_.bytes;
  }

  WrittenStore store_;
  WriteBack back_{store_, true};
  Node node_{"file", {{"file"}, {}}, 1};
  int kept_ = 0;
};

TEST_F(WriteBackTest, SmallWritesGoOutTogether) {
  until_leased();
  for (uint64_t i = 0; i < 100; ++i) write(i * 10, "0123456789");
  EXPECT_EQ(kept_, 100);
  EXPECT_EQ(store_.writes, 0);
  EXPECT_TRUE(back_.settle(node_));
  EXPECT_FALSE(back_.settle(node_));
  EXPECT_EQ(store_.writes, 1);
  EXPECT_EQ(stored().size(), 1000u);
  write(0, std::string(WriteBack::kMostOfWrite + 1, 'x'));
  EXPECT_EQ(kept_, 100) << "a large one is no use to keep";
  for (int i = 0; i < 40; ++i) write(static_cast<uint64_t>(i) << 16, std::string(65536, 'y'));
  EXPECT_GE(store_.writes, 3) << "bounded";
}

TEST_F(WriteBackTest, AFewWritesAskForNoLease) {
  write(0, "a");
  write(1, "b");
  EXPECT_EQ(store_.lease, 0u);
  EXPECT_EQ(stored(), "ab");
}

TEST_F(WriteBackTest, IsWrittenAndGivenBackWhenItIsRecalledOrLost) {
  until_leased();
  write(0, "recalled");
  back_.recalled(store_.lease);
  wait_for([&] { return store_.lease == 0; });
  EXPECT_EQ(stored(), "recalled");
  std::this_thread::sleep_for(250ms);
  until_leased();
  write(0, "mislaid");
  back_.lost();
  wait_for([&] { return store_.lease == 0; });
  EXPECT_EQ(stored(), "mislaidd");
}

TEST_F(WriteBackTest, IsWrittenWhenItIsOld) {
  until_leased();
  write(0, "old");
  wait_for([&] { return stored() == "old"; });
  EXPECT_NE(store_.lease, 0u);
}

TEST_F(WriteBackTest, WhatCameTooLateIsToldOnceToEach) {
  until_leased();
  uint64_t mine = back_.errors(node_), theirs = mine;
  write(0, "late");
  store_.lease = 0;  // others have gone on
  back_.settle(node_);
  EXPECT_EQ(stored(), "x");
  EXPECT_EQ(back_.take_error(node_, mine).value().code(), EIO);
  EXPECT_FALSE(back_.take_error(node_, mine));
  EXPECT_EQ(back_.take_error(node_, theirs).value().code(), EIO);
  store_.failure = ENOSPC;
  back_.recalled(store_.last);
  wait_for([&] { return store_.lease == 0; });
}

TEST_F(WriteBackTest, AFailureIsTold) {
  until_leased();
  uint64_t seen = back_.errors(node_);
  write(0, "full");
  store_.failure = ENOSPC;
  back_.settle(node_);
  EXPECT_EQ(back_.take_error(node_, seen).value().code(), ENOSPC);
}

TEST_F(WriteBackTest, NothingIsKeptBesideReadersOrWithoutALease) {
  until_leased();
  write(0, "seen");
  back_.opened_to_read(node_);
  EXPECT_EQ(stored(), "seen");
  EXPECT_EQ(store_.lease, 0u);
  kept_ = 0;
  for (int i = 0; i < 10; ++i) write(0, "y");
  EXPECT_EQ(kept_, 0);
  back_.closed_to_read(node_);
  std::this_thread::sleep_for(250ms);
  store_.recalls_early = true;
  for (int i = 0; i < 10; ++i) write(0, "z");
  EXPECT_EQ(kept_, 0) << "recalled before it was known";
  store_.refusal = EOPNOTSUPP;
  std::this_thread::sleep_for(250ms);
  for (int i = 0; i < 10; ++i) write(0, "z");
  EXPECT_EQ(kept_, 0);
}

TEST_F(WriteBackTest, TheBytesAreThoseOfASerialOracle) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  std::string oracle;
  for (int step = 0; step < 5000; ++step) {
    const uint64_t at = random() % 3000;
    std::string text(1 + random() % (random() % 20 == 0 ? 80000 : 300), '\0');
    for (char& c : text) c = static_cast<char>(random());
    write(at, text, random() % 10 == 0 ? "other" : "right");
    oracle.resize(std::max<size_t>(oracle.size(), at + text.size()));
    oracle.replace(at, text.size(), text);
    if (random() % 50 == 0) back_.recalled(store_.lease);
    if (random() % 50 == 0) {
      back_.settle(node_);
      ASSERT_EQ(stored() == oracle, true) << "seed " << seed << ", step " << step;
    }
    if (random() % 500 == 0) std::this_thread::sleep_for(210ms);
  }
  EXPECT_GT(kept_, 100);
}

}  // namespace
}  // namespace forebay::fuse
