#include "plan/auto_policy.h"

#include <gtest/gtest.h>

namespace forebay::plan {
namespace {

using namespace std::chrono_literals;

// A Store under steady load: what a batch holds and how long it takes, by policy.
struct Load {
  uint64_t size;
  uint64_t merged;      // requests of one batch, by hbrr
  Duration fifo, hbrr;  // of one batch
};

struct Bench {
  AutoPolicy policy;
  Duration busy{0};
  Duration by[2] = {};  // time spent under each

  void run(const Load& load, Duration time) {
    for (const Duration end = busy + time; busy < end;) {
      const bool fifo = policy.policy() == Policy::fifo;
      const Duration took = fifo ? load.fifo : load.hbrr;
      const uint64_t n = fifo ? 1 : load.merged;
      busy += took;
      by[fifo] += took;
      policy.batch(n, n * load.size, busy);
    }
  }
  double share_of_fifo() const { return double(by[1].count()) / double((by[0] + by[1]).count()); }
};

TEST(AutoPolicy, MergesWhereItPays) {
  Bench b;
  b.run({4096, 16, 100us, 150us}, 10s);
  EXPECT_EQ(b.policy.policy(), Policy::hbrr);
  EXPECT_LT(b.share_of_fifo(), 0.03) << "trials are rare";
  EXPECT_NE(b.policy.why().find("hbrr: 16.0 requests per batch"), std::string::npos)
      << b.policy.why();
}

TEST(AutoPolicy, DoesNotMergeWhereThatIsSlower) {
  Bench b;
  b.run({32768, 2, 10us, 40us}, 10s);
  EXPECT_EQ(b.policy.policy(), Policy::fifo);
  EXPECT_GT(b.share_of_fifo(), 0.97);
  EXPECT_NE(b.policy.why().find("faster when tried"), std::string::npos) << b.policy.why();
}

TEST(AutoPolicy, LeavesAloneWhatDoesNotTouch) {
  Bench b;
  b.run({4096, 1, 10us, 10us}, 10s);
  EXPECT_EQ(b.policy.policy(), Policy::fifo);
  EXPECT_NE(b.policy.why().find("nothing to merge"), std::string::npos) << b.policy.why();
}

TEST(AutoPolicy, LeavesAloneWhatIsLarge) {
  Bench b;
  b.run({1 << 20, 1, 300us, 300us}, 2s);
  EXPECT_EQ(b.policy.policy(), Policy::fifo);
  EXPECT_NE(b.policy.why().find("large"), std::string::npos) << b.policy.why();
}

TEST(AutoPolicy, FollowsTheLoad) {
  Bench b;
  b.run({1 << 20, 1, 300us, 300us}, 10s);
  b.run({4096, 16, 100us, 150us}, 500ms);
  EXPECT_EQ(b.policy.policy(), Policy::hbrr) << b.policy.why();
  b.run({4096, 1, 100us, 100us}, 6s);
  EXPECT_EQ(b.policy.policy(), Policy::fifo) << b.policy.why();
  b.run({4096, 16, 100us, 150us}, 6s);
  EXPECT_EQ(b.policy.policy(), Policy::hbrr) << b.policy.why();
}

}  // namespace
}  // namespace forebay::plan
