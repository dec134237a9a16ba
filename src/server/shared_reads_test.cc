#include "server/shared_reads.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "core/testing.h"
#include "server/sieved_store.h"
#include "store/memory.h"

namespace forebay::server::shared_reads_tests {
namespace {

constexpr uint64_t kBuffer = 16_KiB;

// Answers reads when it is told to; reads at once or when it answers.
class SlowStore final : public Decorator {
 public:
  SlowStore() : Decorator(std::make_unique<MemoryStore>()) {}
  ~SlowStore() override { answer(waiting_.size()); }

  unsigned concurrency() const override { return 2; }  // one cell of a file at a time
  void submit(Request&& request, Completion&& done) override {
    if (request.op != Op::read || !holds)
      return inner().submit(std::move(request), std::move(done));
    asked.push_back(request.file.bounds());
    pieces.push_back(request.file.pieces());
    if (fails > 0 && fails-- > 0) {
      waiting_.push_back({Error(EIO), std::move(done)});
    } else {
      waiting_.push_back({inner().call(std::move(request)), std::move(done)});
    }
  }
  Result<Reply> call(Request request) override { return Store::call(std::move(request)); }
  void answer(size_t n = 1) {
    for (; n > 0 && !waiting_.empty(); --n) {
      Held held = std::move(waiting_.front());
      waiting_.pop_front();
      held.done(std::move(held.result));
    }
  }
  size_t waiting() const { return waiting_.size(); }

  bool holds = false;
  int fails = 0;
  std::vector<Extent> asked;
  std::vector<uint64_t> pieces;

 private:
  struct Held {
    Result<Reply> result;
    Completion done;
  };
  std::deque<Held> waiting_;
};

class SharedReadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto slow = std::make_unique<SlowStore>();
    slow_ = slow.get();
    store_ = std::make_unique<SievedStore>(
        std::move(slow), SieveOptions{.call = 2_KiB}, pool_,
        SieveCounters{counters_.get("reads"), counters_.get("writes"), counters_.get("windows"),
                      counters_.get("bytes")});
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
    write(50000);
    slow_->holds = true;
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
  void write(uint64_t size) {
    content_.resize(size);
    for (char& c : content_) c = static_cast<char>(random_());
    const auto bytes = std::as_writable_bytes(std::span(content_));
    store_->call(request(Op::write, Extents(ext(0, size)), Memory::of(bytes))).value();
  }

  struct Read {
    Extents file;
    std::string bytes;
    std::stop_source stop;
    std::optional<Result<Reply>> result;
  };
  // Every eighth block of a stretch.
  std::unique_ptr<Read> begin(Extents file) {
    auto read = std::make_unique<Read>();
    read->file = std::move(file);
    read->bytes.assign(read->file.total().value, '?');
    Request r =
        request(Op::read, read->file, Memory::of(std::as_writable_bytes(std::span(read->bytes))));
    r.stop = read->stop.get_token();
    EXPECT_TRUE(store_->gathers(r));
    store_->submit(std::move(r), [at = read.get()](Result<Reply>&& result) {
      at->result.emplace(std::move(result));
    });
    return read;
  }
  std::unique_ptr<Read> eighth(uint64_t k, uint64_t count = 16) {
    return begin(Extents::make({ext(k * 100, 100)}, {{count, 800}}).value());
  }
  void answer_all() {
    while (slow_->waiting() > 0) slow_->answer();
  }
  void expect_right(const Read& read) {
    std::string expected(read.bytes.size(), '?');
    uint64_t count = 0;
    bool there = true;
    walk_pairs(read.file, Extents(ext(0, expected.size())), [&](Extent from, Extent to) {
      for (uint64_t i = 0; there && i < from.length.value; ++i) {
        there = from.offset.value + i < content_.size();
        if (there) expected[to.offset.value + i] = content_[from.offset.value + i], ++count;
      }
      return there;
    });
    ASSERT_TRUE(read.result.has_value());
    ASSERT_TRUE(read.result->has_value()) << read.result->error().message();
    EXPECT_EQ((*read.result)->count, count);
    EXPECT_TRUE(read.bytes.substr(0, count) == expected.substr(0, count));
  }

  std::mt19937_64 random_{test_seed()};
  CounterSet counters_;
  CallerRef caller_ = this_process_caller();
  BufferPool pool_{8 * kBuffer, kBuffer};
  SlowStore* slow_ = nullptr;
  std::unique_ptr<SievedStore> store_;
  Handle handle_;
  Right right_;
  std::string content_;
};

TEST_F(SharedReadsTest, WhoComesWhileItReadsIsServedTogether) {
  std::vector<std::unique_ptr<Read>> all;
  for (uint64_t k = 0; k < 8; ++k) all.push_back(eighth(k));
  EXPECT_EQ(slow_->asked.size(), 1u) << "for the first; the others gather";
  answer_all();
  ASSERT_EQ(slow_->asked.size(), 2u);
  EXPECT_EQ(slow_->asked[0], ext(0, 15 * 800 + 100));
  EXPECT_EQ(slow_->asked[1], ext(100, 15 * 800 + 700));
  EXPECT_EQ(slow_->pieces[1], 1u);
  for (const auto& read : all) expect_right(*read);
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(SharedReadsTest, WhoComesLateCatchesUp) {
  const auto first = eighth(0, 60);  // three cells and a little
  slow_->answer(2);
  const auto second = eighth(1, 60);
  answer_all();
  expect_right(*first);
  expect_right(*second);
  EXPECT_LT(slow_->asked.size(), 7u) << "the last cell is shared";
}

TEST_F(SharedReadsTest, NothingIsKept) {
  const auto before = eighth(0);
  const std::string old = content_;
  slow_->holds = false;
  write(50000);
  slow_->holds = true;
  const auto after = eighth(0);
  answer_all();
  expect_right(*after);
  content_ = old;
  expect_right(*before);
}

TEST_F(SharedReadsTest, HolesThatNobodyWantsAreNotRead) {
  const auto busy = eighth(0);
  const auto low = begin(Extents::make({ext(0, 100)}, {{3, 200}}).value());
  const auto high = begin(Extents::make({ext(9000, 100)}, {{3, 200}}).value());
  answer_all();
  EXPECT_EQ(slow_->pieces.back(), 2u);
  expect_right(*busy);
  expect_right(*low);
  expect_right(*high);
}

TEST_F(SharedReadsTest, TheEndOfFileIsEverybodysOwn) {
  for (uint64_t size : {0u, 50u, 1000u, 8000u, 17000u, 33333u, 49999u}) {
    slow_->holds = false;
    Request cut = request(Op::resize, {}, {});
    cut.length = Length(size);
    store_->call(std::move(cut)).value();
    content_.resize(size);
    slow_->holds = true;
    std::vector<std::unique_ptr<Read>> all;
    for (uint64_t k = 0; k < 8; ++k) all.push_back(eighth(k, 60));
    answer_all();
    for (const auto& read : all) expect_right(*read);
    slow_->holds = false;
    write(50000);
  }
}

TEST_F(SharedReadsTest, WhatCannotBeReadTogetherIsReadAlone) {
  slow_->fails = 2;
  std::vector<std::unique_ptr<Read>> all;
  for (uint64_t k = 0; k < 4; ++k) all.push_back(eighth(k));
  answer_all();
  for (const auto& read : all) expect_right(*read);
  slow_->fails = 1000;
  const auto bad = eighth(5);
  answer_all();
  ASSERT_FALSE(bad->result->has_value());
  EXPECT_EQ(bad->result->error().code(), EIO);
}

TEST_F(SharedReadsTest, WithoutABufferEachReadsItsPieces) {
  std::vector<Buffer> taken;
  while (Buffer b = pool_.try_take()) taken.push_back(std::move(b));
  const auto read = eighth(3, 60);
  answer_all();
  expect_right(*read);
}

TEST_F(SharedReadsTest, WhoIsCancelledHoldsNobodyUp) {
  const auto first = eighth(0), second = eighth(1), third = eighth(2);
  second->stop.request_stop();
  answer_all();
  expect_right(*first);
  expect_right(*third);
  ASSERT_FALSE(second->result->has_value());
  EXPECT_EQ(second->result->error().code(), ECANCELED);
}

TEST_F(SharedReadsTest, EachNeedsARightOfItsOwn) {
  const auto good = eighth(0);
  right_.bytes = "forged";
  Read bad;
  bad.bytes.assign(1600, '?');
  Request r = request(Op::read, Extents::make({ext(100, 100)}, {{16, 800}}).value(),
                      Memory::of(std::as_writable_bytes(std::span(bad.bytes))));
  store_->submit(std::move(r), [&](Result<Reply>&& result) { bad.result = std::move(result); });
  answer_all();
  EXPECT_FALSE(bad.result->has_value());
  expect_right(*good);
}

TEST_F(SharedReadsTest, WhatWaitsWhenItGoesFails) {
  const auto first = eighth(0), second = eighth(1);
  store_.reset();
  EXPECT_TRUE(first->result.has_value());
  ASSERT_TRUE(second->result.has_value());
  EXPECT_EQ(second->result->error().code(), ESHUTDOWN);
}

TEST_F(SharedReadsTest, RandomReadsInAnyOrder) {
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<Read>> all;
    for (int i = 0; i < 12; ++i) {
      const uint64_t piece = 1 + random_() % 300;
      std::vector<Extent> blocks{ext(random_() % 40000, piece)};
      if (random_() % 2) blocks.push_back(ext(random_() % 40000, 1 + random_() % 300));
      const auto stride = static_cast<int64_t>(piece + random_() % 900);
      auto file = Extents::make(std::move(blocks), {{2 + random_() % 60, stride}}).value();
      Request probe = request(Op::read, file, {nullptr, Extents(ext(0, file.total().value))});
      if (store_->gathers(probe)) all.push_back(begin(std::move(file)));
      if (random_() % 3 == 0) slow_->answer(random_() % 3);
    }
    answer_all();
    for (const auto& read : all) expect_right(*read);
  }
  EXPECT_EQ(pool_.in_use(), 0u);
}

}  // namespace
}  // namespace forebay::server::shared_reads_tests
