// Nothing leads out of the export: no "..", no absolute name, no symbolic link, no race, no handle.
#include <fmt/format.h>
#include <stdio.h>
#include <sys/mount.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "store/posix_testing.h"

namespace forebay {
namespace {

class PosixConfinement : public testing::TestWithParam<bool> {
 protected:
  static PosixOptions options() {
    PosixOptions o;
    o.force_path_handles = GetParam();
    return o;
  }
  // A folder beside the export, with a file to steal.
  void SetUp() override {
    ASSERT_EQ(::mkdir(rig_.outside("secret").c_str(), 0755), 0);
    put_file(rig_.outside("secret/file"), "secret");
  }
  size_t entries_outside() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(rig_.outside("secret")), {}));
  }

  PosixRig rig_{options()};
};

INSTANTIATE_TEST_SUITE_P(Handles, PosixConfinement, testing::Values(false, true),
                         [](const auto& way) { return way.param ? "path" : "kernel"; });

TEST_P(PosixConfinement, DotsAndAbsoluteNamesAreRefused) {
  ASSERT_TRUE(rig_.mkdir(rig_.root, "d"));
  const std::string absolute = rig_.outside("secret/file");
  for (const std::string& name :
       {std::string(".."), std::string("."), std::string("../secret/file"),
        std::string("d/../../secret/file"), std::string("d/.."), absolute, std::string("/")}) {
    EXPECT_EQ(code_of(rig_.lookup(name)), EINVAL) << name;
    EXPECT_EQ(code_of(rig_.create(name)), EINVAL) << name;
    EXPECT_EQ(code_of(rig_.mkdir(rig_.root, name)), EINVAL) << name;
    EXPECT_EQ(code_of(rig_.remove(rig_.root, name)), EINVAL) << name;
    EXPECT_EQ(code_of(rig_.rename(rig_.root, "d", rig_.root, name)), EINVAL) << name;
    EXPECT_EQ(code_of(rig_.rename(rig_.root, name, rig_.root, "x")), EINVAL) << name;
  }
  EXPECT_EQ(code_of(rig_.lookup(std::string("d\0x", 3))), EINVAL);
}

TEST_P(PosixConfinement, SymbolicLinksAreNotFollowed) {
  ASSERT_EQ(::symlink(rig_.outside("secret").c_str(), rig_.path("out").c_str()), 0);
  ASSERT_EQ(::symlink("../secret/file", rig_.path("file").c_str()), 0);
  EXPECT_EQ(code_of(rig_.lookup("out/file")), ELOOP);
  auto link = rig_.lookup("out");
  ASSERT_TRUE(link);
  EXPECT_EQ(link->attr.type, FileType::symlink);
  EXPECT_EQ(code_of(rig_.lookup(link->handle, "file")), ENOTDIR);
  EXPECT_EQ(code_of(rig_.create(link->handle, "new")), ENOTDIR);
  EXPECT_EQ(code_of(rig_.mkdir(link->handle, "new")), ENOTDIR);
  EXPECT_EQ(code_of(rig_.remove(link->handle, "file")), ENOTDIR);
  EXPECT_EQ(code_of(rig_.call({.op = Op::readdir, .handle = link->handle})), ENOTDIR);
  auto file = rig_.lookup("file");
  EXPECT_EQ(code_of(rig_.open(file->handle, Access::read)), ELOOP);
  EXPECT_EQ(code_of(rig_.create("file")), ELOOP);
  EXPECT_EQ(code_of(rig_.call({.op = Op::resize, .handle = file->handle})), EINVAL);
  // What is changed is the link, not what it points at.
  SetAttr set{.what = SetAttr::kMtime};
  set.mtime = {1000, 0};
  ASSERT_TRUE(rig_.call({.op = Op::setattr, .handle = file->handle, .set = set}));
  struct stat s;
  ASSERT_EQ(::stat(rig_.outside("secret/file").c_str(), &s), 0);
  EXPECT_NE(s.st_mtime, 1000);
  SetAttr mode{.what = SetAttr::kMode, .mode = 0777};
  EXPECT_EQ(code_of(rig_.call({.op = Op::setattr, .handle = file->handle, .set = mode})),
            EOPNOTSUPP);
  // A hard link to a symbolic link is one to the link.
  ASSERT_TRUE(
      rig_.call({.op = Op::link, .handle = file->handle, .handle2 = rig_.root, .name2 = "file2"}));
  EXPECT_EQ(rig_.lookup("file2")->attr.type, FileType::symlink);
  EXPECT_EQ(content_of(rig_.outside("secret/file")), "secret");
  EXPECT_EQ(entries_outside(), 1u);
}

TEST_P(PosixConfinement, TheOwnFolderCannotBeNamed) {
  auto open = rig_.create("open");
  ASSERT_TRUE(rig_.remove(rig_.root, "open"));
  ASSERT_TRUE(std::filesystem::exists(rig_.path(".forebay/unlinked")));
  for (const char* name : {".forebay", ".forebay/unlinked"})
    EXPECT_EQ(code_of(rig_.lookup(name)), ENOENT) << name;
  EXPECT_EQ(code_of(rig_.create(".forebay")), EPERM);
  EXPECT_EQ(code_of(rig_.mkdir(rig_.root, ".forebay")), EPERM);
  EXPECT_EQ(code_of(rig_.remove(rig_.root, ".forebay", kFlagDirectory)), ENOENT);
  EXPECT_EQ(code_of(rig_.rename(rig_.root, ".forebay", rig_.root, "mine")), ENOENT);
  auto d = rig_.mkdir(rig_.root, "d");
  EXPECT_EQ(code_of(rig_.rename(rig_.root, "d", rig_.root, ".forebay")), EPERM);
  // Elsewhere the name is like any other.
  EXPECT_TRUE(rig_.mkdir(d->handle, ".forebay"));
  EXPECT_TRUE(rig_.lookup("d/.forebay"));
  EXPECT_TRUE(rig_.close(open->handle, open->right));
}

TEST_P(PosixConfinement, OtherMountsAreNotEntered) {
  ASSERT_TRUE(rig_.mkdir(rig_.root, "m"));
  if (!own_mounts() || ::mount("none", rig_.path("m").c_str(), "tmpfs", 0, "size=64k"))
    GTEST_SKIP() << "cannot mount here: " << errno_name(errno);
  rig_.restart();
  EXPECT_EQ(code_of(rig_.lookup("m")), EXDEV);
  auto listed = rig_.call(
      {.op = Op::readdir, .flags = kFlagPlus, .handle = rig_.root, .length = Length(4096)});
  ASSERT_TRUE(listed);
  for (const Entry& e : listed->entries) EXPECT_TRUE(e.handle.empty()) << e.name;
  rig_.stop();
  EXPECT_EQ(::umount2(rig_.path("m").c_str(), MNT_DETACH), 0);
}

// Somebody swaps a directory and a link that leads outside as fast as he can, while others look up
// and create below its name. All must land inside, or fail.
TEST_P(PosixConfinement, NoRaceLeadsOut) {
  ASSERT_TRUE(rig_.mkdir(rig_.root, "d"));
  ASSERT_TRUE(rig_.create(rig_.lookup("d")->handle, "inside"));
  ASSERT_EQ(::symlink(rig_.outside("secret").c_str(), rig_.path("link").c_str()), 0);
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    const std::string a = rig_.path("d"), b = rig_.path("link");
    while (!stop) ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  });
  std::atomic<int> reached{0}, refused{0}, escaped{0};
  const auto look = [&](int salt) {
    for (int i = 0; i < 1500; ++i) {
      if (rig_.lookup("d/file")) ++escaped;
      auto found = rig_.lookup("d/inside");
      ++(found ? reached : refused);
      auto d = rig_.lookup("d");
      if (!d) continue;
      const std::string name = fmt::format("new{}-{}", salt, i);
      auto made = rig_.create(d->handle, name);
      if (made) (void)rig_.close(made->handle, made->right);
    }
  };
  std::thread other([&] { look(1); });
  look(2);
  other.join();
  stop = true;
  swapper.join();
  EXPECT_EQ(escaped, 0);
  EXPECT_EQ(entries_outside(), 1u);
  EXPECT_GT(reached, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace forebay
