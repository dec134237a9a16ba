// Clients that keep copies under leases, on threads and connections of their own, while another one
// writes: no copy that is used is older than a write that has completed.
#include <gtest/gtest.h>

#include <atomic>
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

TEST(ClientLeases, NoCopyIsOlderThanACompletedWrite) {
  constexpr int kReaders = 3;
  const ServerProcess server;
  auto writer = server.connect().value();
  Request create;
  create.op = Op::create;
  create.caller = this_process_caller();
  create.handle = writer->root().value();
  create.name = "number";
  create.mode = 0600;
  create.access = Access::both;
  const Reply made = writer->call(std::move(create)).value();
  const SharedNumber number{made.handle, made.right};
  uint64_t zero = 0;
  ASSERT_TRUE(writer->call(number.transfer(Op::write, zero)));

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

}  // namespace
}  // namespace forebay
