#include "fuse/file_leases.h"

#include <gtest/gtest.h>

#include <atomic>

namespace forebay::fuse {
namespace {

using namespace std::chrono_literals;

// Gives leases, and lets a test say what comes in between.
class LeasingStore final : public Store {
 public:
  void submit(Request&& request, Completion&& done) override {
    if (request.op != Op::lease) return done(Error(EIO));
    if (refuses) return done(Error(EOPNOTSUPP));
    ++asked;
    Reply reply;
    reply.value = ++last;
    reply.attr.size = size;
    if (std::exchange(recalls_early, false)) holder->recalled(last);
    done(std::move(reply));
  }
  void hold_leases(LeaseHolder* who) override { holder = who; }
  void give_back(uint64_t lease) override { given_back = lease; }
  Duration leases_until() const override { return until; }
  Result<Handle> root() override { return Handle{"root"}; }

  LeaseHolder* holder = nullptr;
  uint64_t last = 0, size = 100;
  int asked = 0;
  bool refuses = false, recalls_early = false;
  std::atomic<uint64_t> given_back{0};
  Duration until = since_boot() + 1h;
};

class FileLeasesTest : public testing::Test {
 protected:
  void SetUp() override {
    leases_.start([this](uint64_t) { ++drops_; });
    leases_.opened(node_);
  }
  void TearDown() override {
    leases_.closed(node_);
    leases_.stop();
  }
  Attr gate() {
    return *leases_.gate(node_, 7, {}, [this] {
      ++asks_;
      Result<Reply> reply(std::in_place);
      reply->attr.size = store_.size;
      return reply;
    });
  }
  template <class Done>
  void wait_for(Done&& done) {
    for (int i = 0; i < 2000 && !done(); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(done());
  }

  LeasingStore store_;
  Node node_{"file", Found{Handle{"file"}, Attr{}}, 1};
  std::atomic<int> drops_{0};
  int asks_ = 0;
  FileLeases leases_{store_, true};
};

TEST_F(FileLeasesTest, AnswersFromMemoryUnderALeaseUntilItIsRecalled) {
  leases_.tell(node_, 7, 100);
  const Attr first = gate();
  EXPECT_EQ(store_.asked, 1);
  EXPECT_EQ(drops_, 1) << "what was there before";
  EXPECT_EQ(gate(), first);
  EXPECT_EQ(asks_, 0);
  store_.holder->recalled(store_.last);
  wait_for([&] { return store_.given_back == 1; });
  EXPECT_EQ(drops_, 2) << "before it is given back";
  wait_for([&] { return gate().mtime != first.mtime; });
  EXPECT_EQ(store_.asked, 2);
}

TEST_F(FileLeasesTest, TakesNoneOfAFileWhoseSizeTheKernelMayNotHave) {
  EXPECT_EQ(gate().size, 100u);
  EXPECT_EQ(store_.asked, 0) << "nothing was told yet";
  store_.size = 200;
  const Attr other = gate();
  EXPECT_EQ(other.size, 200u);
  EXPECT_EQ(store_.given_back, 1u) << "taken, and the size was another one";
  EXPECT_EQ(drops_, 0) << "the kernel would not hear of the size";
  gate();
  EXPECT_EQ(leases_.held(), 1u);
}

TEST_F(FileLeasesTest, IsNotGoodWhenItsTimeIsOver) {
  leases_.tell(node_, 7, 100);
  const Attr first = gate();
  store_.until = since_boot() - 1s;
  EXPECT_NE(gate().mtime, first.mtime);
  EXPECT_FALSE(leases_.opened(node_)) << "pages are not kept";
  leases_.closed(node_);
}

TEST_F(FileLeasesTest, MayBeRecalledBeforeItIsKnown) {
  leases_.tell(node_, 7, 100);
  store_.recalls_early = true;
  gate();
  EXPECT_EQ(leases_.held(), 0u);
  EXPECT_EQ(store_.given_back, 1u);
  EXPECT_EQ(asks_, 1);
}

TEST_F(FileLeasesTest, AllAreLostTogether) {
  leases_.tell(node_, 7, 100);
  const Attr first = gate();
  store_.holder->lost();
  EXPECT_EQ(leases_.held(), 0u);
  wait_for([&] { return store_.given_back == 1; });
  EXPECT_EQ(drops_, 2) << "if somebody is there who waits for it";
  EXPECT_NE(gate().mtime, first.mtime);
}

TEST_F(FileLeasesTest, PagesThatWereReadWithoutAreLookedAfter) {
  leases_.reads(node_, 7, {});
  EXPECT_EQ(store_.asked, 0);
  leases_.tell(node_, 7, 100);
  wait_for([&] { return leases_.held() == 1 && drops_ == 1; });
}

TEST_F(FileLeasesTest, AFileThatGetsNoneIsNotKept) {
  store_.refuses = true;
  leases_.tell(node_, 7, 100);
  EXPECT_TRUE(leases_.keeps(node_));
  gate();
  EXPECT_FALSE(leases_.keeps(node_));
}

}  // namespace
}  // namespace forebay::fuse
