#include "mpiio/size_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <random>

#include "core/testing.h"
#include "store/memory.h"

namespace forebay::mpiio {
namespace {

// As long as it lives. Files of this test's own are none of the kernel's.
class Limited {
 public:
  explicit Limited(uint64_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);  // what a test says may go to a file
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~Limited() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  Limited(const Limited&) = delete;

 private:
  rlimit before_{};
};

class SizeLimit : public testing::Test {
 protected:
  void SetUp() override {
    auto made = store_.call({.op = Op::create,
                             .caller = caller_,
                             .handle = *store_.root(),
                             .name = "f",
                             .access = Access::both});
    ASSERT_TRUE(made) << made.error().message();
    file_ = std::move(*made);
  }
  Request request(Op op) const {
    return {.op = op, .caller = caller_, .handle = file_.handle, .right = file_.right};
  }
  Result<Reply> write(Extents where) {
    Request r = request(Op::write);
    bytes_.assign(where.total().value, std::byte{7});
    r.file = std::move(where);
    r.memory = Memory::of(std::span<const std::byte>(bytes_));
    return call_within_limit(store_, std::move(r));
  }
  Result<Reply> lengthen(Op op, uint64_t length) {
    Request r = request(op);
    r.length = Length(length);
    return call_within_limit(store_, std::move(r));
  }
  static int code_of(const Result<Reply>& result) { return result ? 0 : result.error().code(); }
  uint64_t size() {
    return store_.call({.op = Op::getattr, .caller = caller_, .handle = file_.handle})->attr.size;
  }

  MemoryStore store_;
  CallerRef caller_ = this_process_caller();
  Reply file_;
  std::vector<std::byte> bytes_;
};

TEST_F(SizeLimit, CutsWritesWhereItLies) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(lengthen(Op::resize, 0));
    std::vector<Extent> pieces;
    for (uint64_t at = random() % 50; pieces.size() < 20; at += 1 + random() % 60) {
      pieces.push_back(ext(at, 1 + random() % 40));
      at = pieces.back().end().value;
    }
    const uint64_t limit = random() % (pieces.back().end().value + 100);
    uint64_t expected = 0, end = 0;
    for (const Extent& one : pieces) {
      const uint64_t to = std::min(one.end().value, limit);
      if (to > one.offset.value) expected += to - one.offset.value, end = to;
      if (to < one.end().value) break;
    }
    const Limited now(limit);
    const Extents all = *Extents::make(std::move(pieces));
    const auto done = write(all);
    EXPECT_EQ(done.has_value(), expected == all.total().value);
    EXPECT_EQ(done ? done->count : done.error().done(), expected);
    EXPECT_EQ(done ? EFBIG : done.error().code(), EFBIG);
    EXPECT_EQ(size(), end);
  }
}

TEST_F(SizeLimit, NothingIsMadeLonger) {
  EXPECT_TRUE(lengthen(Op::resize, 5000));
  const Limited now(1000);
  EXPECT_EQ(code_of(lengthen(Op::resize, 5001)), EFBIG);
  EXPECT_EQ(code_of(lengthen(Op::fallocate, 5001)), EFBIG);
  EXPECT_TRUE(lengthen(Op::resize, 4000)) << "it is shorter than it was";
  EXPECT_EQ(size(), 4000u);
  EXPECT_EQ(code_of(write(Extents(ext(1000, 10)))), EFBIG);
  EXPECT_TRUE(write(Extents(ext(990, 10))));
  EXPECT_TRUE(lengthen(Op::resize, 1000));
}

}  // namespace
}  // namespace forebay::mpiio
