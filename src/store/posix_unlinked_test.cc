// Files that lose their name while open.
#include <filesystem>
#include <thread>

#include "store/posix_testing.h"

namespace forebay {
namespace {

class PosixUnlinked : public testing::TestWithParam<bool> {
 protected:
  static PosixOptions options() {
    PosixOptions o;
    o.force_path_handles = GetParam();
    return o;
  }
  size_t hidden_files() const {
    std::error_code none;
    const std::filesystem::directory_iterator in(rig_.path(".forebay/unlinked"), none);
    return none ? 0 : static_cast<size_t>(std::distance(in, {}));
  }
  bool soon(auto&& condition) {
    for (int i = 0; i < 500 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
  }

  PosixRig rig_{options()};
};

INSTANTIATE_TEST_SUITE_P(Handles, PosixUnlinked, testing::Values(false, true),
                         [](const auto& way) { return way.param ? "path" : "kernel"; });

TEST_P(PosixUnlinked, LivesUntilItsLastRightIsClosed) {
  auto made = rig_.create("a");
  auto second = rig_.open(made->handle, Access::read);
  ASSERT_TRUE(rig_.write(made->handle, made->right, 0, "text"));
  ASSERT_TRUE(rig_.remove(rig_.root, "a"));
  EXPECT_EQ(code_of(rig_.lookup("a")), ENOENT);
  EXPECT_EQ(hidden_files(), 1u);
  EXPECT_EQ(rig_.getattr(made->handle)->attr.links, 0u);
  EXPECT_EQ(*rig_.read(made->handle, made->right, 0, 9), "text");
  EXPECT_EQ(code_of(rig_.call(
                {.op = Op::link, .handle = made->handle, .handle2 = rig_.root, .name2 = "again"})),
            ENOENT);
  ASSERT_TRUE(rig_.close(made->handle, made->right));
  EXPECT_EQ(*rig_.read(made->handle, second->right, 0, 9), "text");
  ASSERT_TRUE(rig_.close(made->handle, second->right));
  EXPECT_EQ(hidden_files(), 0u);
  EXPECT_EQ(code_of(rig_.read(made->handle, second->right, 0, 9)), ESTALE);
  EXPECT_EQ(code_of(rig_.getattr(made->handle)), ESTALE);
  EXPECT_TRUE(rig_.close(made->handle, second->right));
  rig_.stop();
  EXPECT_FALSE(std::filesystem::exists(rig_.path(".forebay")));
}

TEST_P(PosixUnlinked, ReplacedByARename) {
  auto old = rig_.create("a"), fresh = rig_.create("b");
  ASSERT_TRUE(rig_.write(old->handle, old->right, 0, "old"));
  ASSERT_TRUE(rig_.write(fresh->handle, fresh->right, 0, "new"));
  ASSERT_TRUE(rig_.rename(rig_.root, "b", rig_.root, "a"));
  EXPECT_EQ(*rig_.read(old->handle, old->right, 0, 9), "old");
  EXPECT_EQ(*rig_.read(fresh->handle, fresh->right, 0, 9), "new");
  EXPECT_EQ(content_of(rig_.path("a")), "new");
  EXPECT_EQ(rig_.getattr(old->handle)->attr.links, 0u);
  EXPECT_EQ(rig_.getattr(fresh->handle)->attr.links, 1u);
  ASSERT_TRUE(rig_.close(old->handle, old->right));
  EXPECT_EQ(hidden_files(), 0u);
}

TEST_P(PosixUnlinked, AFailedRemovalLeavesNothing) {
  auto made = rig_.create("a");
  ASSERT_TRUE(rig_.mkdir(rig_.root, "d"));
  EXPECT_EQ(code_of(rig_.rename(rig_.root, "d", rig_.root, "a")), ENOTDIR);
  EXPECT_EQ(code_of(rig_.remove(rig_.root, "a", kFlagDirectory)), ENOTDIR);
  EXPECT_EQ(hidden_files(), 0u);
  EXPECT_EQ(rig_.getattr(made->handle)->attr.links, 1u);
}

TEST_P(PosixUnlinked, SurvivesEvictionOfItsDescriptors) {
  rig_.stop();
  rig_.options().descriptors = 4;
  rig_.start();
  auto made = rig_.create("a");
  ASSERT_TRUE(rig_.write(made->handle, made->right, 0, "text"));
  ASSERT_TRUE(rig_.remove(rig_.root, "a"));
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(rig_.mkdir(rig_.root, std::to_string(i)));
  EXPECT_EQ(*rig_.read(made->handle, made->right, 0, 9), "text");
}

TEST_P(PosixUnlinked, SurvivesARestartForThoseWhoComeBack) {
  rig_.options().hidden_grace = std::chrono::milliseconds(300);
  auto back = rig_.create("back"), lost = rig_.create("lost");
  ASSERT_TRUE(rig_.write(back->handle, back->right, 0, "text"));
  ASSERT_TRUE(rig_.remove(rig_.root, "back"));
  ASSERT_TRUE(rig_.remove(rig_.root, "lost"));
  ASSERT_EQ(hidden_files(), 2u);
  rig_.restart();
  EXPECT_EQ(*rig_.read(back->handle, back->right, 0, 9), "text");
  EXPECT_EQ(rig_.getattr(back->handle)->attr.links, 0u);
  EXPECT_TRUE(soon([&] { return hidden_files() == 1; }));
  EXPECT_EQ(*rig_.read(back->handle, back->right, 0, 9), "text");
  EXPECT_EQ(code_of(rig_.read(lost->handle, lost->right, 0, 9)), ESTALE);
  ASSERT_TRUE(rig_.close(back->handle, back->right));
  EXPECT_EQ(hidden_files(), 0u);
}

TEST_P(PosixUnlinked, AnotherServersFilesAreLeftAlone) {
  auto made = rig_.create("a");
  ASSERT_TRUE(rig_.remove(rig_.root, "a"));
  PosixOptions other = rig_.options();
  other.hidden_grace = std::chrono::milliseconds(1);
  {
    auto second = PosixStore::open(other, rig_.counters);
    ASSERT_TRUE(second);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(hidden_files(), 1u);
  EXPECT_TRUE(rig_.read(made->handle, made->right, 0, 1));
}

// Whoever owns the folder could reach files in it that he has no right to: nothing is put there,
// and an unlinked file lives in its descriptors only.
TEST_P(PosixUnlinked, AFolderOfSomebodyElseIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  ASSERT_EQ(::mkdir(rig_.path(".forebay").c_str(), 0700), 0);
  ASSERT_EQ(::mkdir(rig_.path(".forebay/unlinked").c_str(), 0700), 0);
  ASSERT_EQ(::chown(rig_.path(".forebay/unlinked").c_str(), 12345, 12345), 0);
  auto made = rig_.create("a");
  ASSERT_TRUE(rig_.write(made->handle, made->right, 0, "text"));
  ASSERT_TRUE(rig_.remove(rig_.root, "a"));
  EXPECT_EQ(hidden_files(), 0u);
  EXPECT_EQ(*rig_.read(made->handle, made->right, 0, 9), "text");
  ASSERT_TRUE(rig_.close(made->handle, made->right));
}

}  // namespace
}  // namespace forebay
