#include "mpiio/sieved_read.h"

#include <gtest/gtest.h>

#include <random>

#include "store/posix_testing.h"

namespace forebay::mpiio {
namespace {

class SievedRead : public testing::Test {
 protected:
  static constexpr uint64_t kSize = 300'000;

  void SetUp() override {
    file_ = *rig_.create("data");
    content_.resize(kSize);
    for (auto& b : content_) b = static_cast<std::byte>(random_());
    Request write = request(Op::write, Extents(ext(0, kSize)));
    write.memory = Memory::of(std::span(content_));
    ASSERT_TRUE(rig_.call(std::move(write)));
  }
  Request request(Op op, Extents file) {
    Request r{.op = op, .caller = rig_.caller, .handle = file_.handle, .right = file_.right};
    r.file = std::move(file);
    return r;
  }
  // Rising pieces, some of them beyond the end.
  std::vector<Extent> random_pieces() {
    std::vector<Extent> pieces;
    const uint64_t hole = 1 + random_() % 3000;
    for (uint64_t at = random_() % 1000; pieces.size() < 400;) {
      const uint64_t length = 1 + random_() % 700;
      pieces.push_back(ext(at, length));
      at += length + random_() % hole;
    }
    return pieces;
  }

  std::mt19937_64 random_{test_seed()};
  PosixRig rig_;
  Reply file_;
  std::vector<std::byte> content_;
};

TEST_F(SievedRead, AsAnOracleSays) {
  for (int round = 0; round < 60; ++round) {
    const Extents file = *Extents::make(random_pieces());
    const ReadSieving sieving{random_() % 2 ? SieveWanted::always : SieveWanted::automatic,
                              1 + random_() % 100'000, random_() % 3 ? 0 : 1 + random_() % 2000};
    std::vector<std::byte> expected, back(file.total().value, std::byte{0x5a});
    for (ExtentCursor cursor(file); !cursor.done();) {
      const Extent piece = cursor.take(file.total());
      for (uint64_t k = 0; k < piece.length.value; ++k) {
        const uint64_t at = piece.offset.value + k;
        if (at < kSize && expected.size() < back.size()) expected.push_back(content_[at]);
      }
    }
    Request read = request(Op::read, file);
    read.memory = Memory::of(std::span(back));
    const auto costs = sieve_costs(file, sieving, false);
    if (!costs) continue;
    const auto count = read_sieved(*rig_.store, read, *costs);
    ASSERT_TRUE(count.has_value()) << count.error().message();
    ASSERT_EQ(*count, expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), back.begin()));
    ASSERT_TRUE(std::all_of(back.begin() + static_cast<ptrdiff_t>(*count), back.end(),
                            [](std::byte b) { return b == std::byte{0x5a}; }));
  }
}

TEST_F(SievedRead, OnlyWhereItIsWanted) {
  const Extents scattered = *Extents::make({ext(0, 100)}, {{1000, 200}});
  EXPECT_TRUE(sieve_costs(scattered, {}, false));
  EXPECT_FALSE(sieve_costs(scattered, {}, true)) << "near";
  EXPECT_TRUE(sieve_costs(scattered, {SieveWanted::always}, true));
  EXPECT_FALSE(sieve_costs(scattered, {SieveWanted::never}, false));
  EXPECT_FALSE(sieve_costs(Extents(ext(0, 100'000)), {SieveWanted::always}, false)) << "one piece";
  const Extents far = *Extents::make({ext(0, 100)}, {{100, 10'000'000}});
  EXPECT_FALSE(sieve_costs(far, {}, false)) << "holes that cost more than calls";
}

}  // namespace
}  // namespace forebay::mpiio
