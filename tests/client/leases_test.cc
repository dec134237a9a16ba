// Clients that keep copies under leases, on threads and connections of their own, while another one
// writes: no copy that is used is older than a write that has completed.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "server_process.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

struct SharedNumber {
  Handle handle;
  Right right;

  Request about(Op op) const {
    Request r;
    r.op = op;
    r.caller = this_process_caller();
    r.handle = handle;
    r.right = right;
    return r;
  }
  Request transfer(Op op, uint64_t& value) const {
    Request r = about(op);
    r.file = Extents(Extent{Offset(0), Length(sizeof value)});
    r.memory = Memory::of(std::as_writable_bytes(std::span(&value, 1)));
    return r;
  }
};

// One client's copy of the number.
class Copy final : public LeaseHolder {
 public:
  Copy(RemoteStore& store, SharedNumber number) : store_(store), number_(std::move(number)) {
    store_.hold_leases(this);
  }
  ~Copy() override { store_.hold_leases(nullptr); }

  uint64_t get() {
    {
      std::lock_guard lock(mutex_);
      if (lease_ != 0 && kept_ && since_boot() < store_.leases_until()) return ++hits_, *kept_;
    }
    Request ask = number_.about(Op::lease);
    ask.flags = kFlagShared;
    const uint64_t lease = store_.call(std::move(ask)).value().value;
    bool good = false;
    {
      std::lock_guard lock(mutex_);
      good = early_.erase(lease) == 0;
      lease_ = good ? lease : 0;
      kept_.reset();
    }
    if (!good) store_.give_back(lease);
    uint64_t value = 0;
    EXPECT_TRUE(store_.call(number_.transfer(Op::read, value)));
    std::lock_guard lock(mutex_);
    if (lease_ == lease) kept_ = value;
    return value;
  }
  uint64_t hits() const { return hits_; }

 private:
  void recalled(uint64_t lease) override {
    {
      std::lock_guard lock(mutex_);
      if (lease != lease_) return void(early_.insert(lease));
      lease_ = 0;
      kept_.reset();
    }
    store_.give_back(lease);
  }
  void lost() override {
    std::lock_guard lock(mutex_);
    lease_ = 0;
    kept_.reset();
  }

  RemoteStore& store_;
  const SharedNumber number_;
  std::mutex mutex_;
  uint64_t lease_ = 0;
  std::optional<uint64_t> kept_;
  std::set<uint64_t> early_;
  std::atomic<uint64_t> hits_{0};
};

// What one client writes, kept under a write lease as long as nobody else looks.
class Keeper final : public LeaseHolder {
 public:
  Keeper(RemoteStore& store, SharedNumber number) : store_(store), number_(std::move(number)) {
    store_.hold_leases(this);
    thread_ = std::thread([this] { work(); });
  }
  ~Keeper() override {
    store_.hold_leases(nullptr);
    {
      std::lock_guard lock(mutex_);
      over_ = true;
      wake_.notify_all();
    }
    thread_.join();
    give_up();
  }

  void set(uint64_t value) {
    std::lock_guard alone(file_);
    if (lease_ == 0) take();
    if (lease_ != 0 && !recalled_ && since_boot() < store_.leases_until()) {
      kept_ = value;
      ++keeps_;
      return;
    }
    give_up();
    EXPECT_TRUE(store_.call(number_.transfer(Op::write, value)));
  }
  uint64_t keeps() const { return keeps_; }

 private:
  void take() {
    {
      std::lock_guard lock(mutex_);
      early_.clear();
      taking_ = true;
    }
    const auto taken = store_.call(number_.about(Op::lease));
    std::lock_guard lock(mutex_);
    taking_ = false;
    if (!taken) {
      EXPECT_EQ(taken.error().code(), EAGAIN);
      return;
    }
    lease_ = taken->value;
    recalled_ = early_.contains(lease_);
    if (recalled_) wake_.notify_all();
  }
  void give_up() {
    if (lease_ == 0) return;
    if (kept_) {
      Request write = number_.transfer(Op::write, *kept_);
      write.cookie = lease_;
      EXPECT_TRUE(store_.call(std::move(write)));
    }
    kept_.reset();
    store_.give_back(lease_);
    std::lock_guard lock(mutex_);
    lease_ = 0;
    recalled_ = false;
  }
  void recalled(uint64_t lease) override {
    std::lock_guard lock(mutex_);
    if (lease != lease_) {
      if (taking_) early_.insert(lease);
      return;
    }
    recalled_ = true;
    wake_.notify_all();
  }
  void lost() override { ADD_FAILURE() << "the connection was lost"; }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return recalled_ || over_; });
      if (over_) return;
      lock.unlock();
      {
        std::lock_guard alone(file_);
        if (recalled_) give_up();
      }
      lock.lock();
    }
  }

  RemoteStore& store_;
  const SharedNumber number_;
  std::mutex file_, mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> lease_{0};
  std::atomic<bool> recalled_{false};
  bool taking_ = false, over_ = false;
  std::set<uint64_t> early_;
  std::optional<uint64_t> kept_;
  std::atomic<uint64_t> keeps_{0};
  std::thread thread_;
};

SharedNumber make_number(RemoteStore& store) {
  Request create;
  create.op = Op::create;
  create.caller = this_process_caller();
  create.handle = store.root().value();
  create.name = "number";
  create.mode = 0600;
  create.access = Access::both;
  const Reply made = store.call(std::move(create)).value();
  SharedNumber number{made.handle, made.right};
  uint64_t zero = 0;
  EXPECT_TRUE(store.call(number.transfer(Op::write, zero)));
  return number;
}

TEST(ClientLeases, NoCopyIsOlderThanACompletedWrite) {
  constexpr int kReaders = 3;
  const ServerProcess server;
  auto writer = server.connect().value();
  const SharedNumber number = make_number(*writer);

  std::atomic<uint64_t> completed{0}, hits{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      auto store = server.connect().value();
      Copy copy(*store, number);
      while (!over) {
        const uint64_t least = completed;
        const uint64_t seen = copy.get();
        if (seen < least) {
          ADD_FAILURE() << "read " << seen << " after " << least << " was written";
          break;
        }
      }
      hits += copy.hits();
    });
  }
  const auto end = std::chrono::steady_clock::now() + 2s;
  for (uint64_t value = 1; std::chrono::steady_clock::now() < end; ++value) {
    ASSERT_TRUE(writer->call(number.transfer(Op::write, value)));
    completed = value;
    if (value % 16 == 0) std::this_thread::sleep_for(5ms);
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(completed, 20u);
  EXPECT_GT(hits, 100u);
}

TEST(ClientLeases, WhatIsKeptIsSeenByWhoeverLooks) {
  const ServerProcess server;
  auto store = server.connect().value();
  const SharedNumber number = make_number(*store);
  std::atomic<uint64_t> completed{0}, looks{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      auto own = server.connect().value();
      while (!over) {
        const uint64_t least = completed;
        uint64_t seen = 0;
        EXPECT_TRUE(own->call(number.transfer(Op::read, seen)));
        EXPECT_GE(seen, least) << "read after that was written";
        ++looks;
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  uint64_t keeps = 0;
  {
    Keeper keeper(*store, number);
    const auto end = std::chrono::steady_clock::now() + 2s;
    for (uint64_t value = 1; std::chrono::steady_clock::now() < end; ++value) {
      keeper.set(value);
      completed = value;
      if (value % 1000 == 0) std::this_thread::sleep_for(1ms);
    }
    over = true;
    for (std::thread& reader : readers) reader.join();
    keeps = keeper.keeps();
  }
  EXPECT_GT(looks, 100u);
  EXPECT_GT(keeps, 100u);
  uint64_t last = 0;
  EXPECT_TRUE(store->call(number.transfer(Op::read, last)));
  EXPECT_EQ(last, completed);
}

}  // namespace
}  // namespace forebay
