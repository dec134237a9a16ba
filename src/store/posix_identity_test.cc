// Acting as the caller: a store run by root for others, and one run by a user for that user only.
#include "store/posix_identity.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <filesystem>
#include <thread>

#include "store/posix_testing.h"

namespace forebay {
namespace {

constexpr uint32_t kAlice = 61001, kBob = 61002, kTeam = 61100;

class PosixIdentity : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!posix::Identity::probe().privileged())
      GTEST_SKIP() << "acting as others needs root with CAP_SETUID and CAP_SETGID";
    PosixOptions options;
    options.force_pool = GetParam();
    rig_ = std::make_unique<PosixRig>(options);
    rig_->through_submit = GetParam();
    // Temporary directories are closed to others; handles do not pass through them.
    ASSERT_EQ(::chmod(rig_->path("").c_str(), 01777), 0);
  }
  PosixRig& as(const CallerRef& caller) {
    rig_->caller = caller;
    return *rig_;
  }

  const CallerRef root_ = this_process_caller();
  const CallerRef alice_ = caller_of(kAlice, kAlice);
  const CallerRef bob_ = caller_of(kBob, kBob);
  const CallerRef bob_in_team_ = caller_of(kBob, kBob, {kTeam});
  std::unique_ptr<PosixRig> rig_;
};

INSTANTIATE_TEST_SUITE_P(Threads, PosixIdentity, testing::Values(false, true),
                         [](const auto& way) { return way.param ? "pool" : "caller"; });

TEST_P(PosixIdentity, FilesBelongToWhoMakesThem) {
  auto a = as(alice_).create("a", 0600);
  EXPECT_EQ(a->attr.uid, kAlice);
  EXPECT_EQ(a->attr.gid, kAlice);
  auto b = as(bob_).mkdir(rig_->root, "b", 0700);
  EXPECT_EQ(b->attr.uid, kBob);
  auto c = as(root_).create("c", 0600);
  EXPECT_EQ(c->attr.uid, 0u);
  EXPECT_EQ(code_of(as(bob_).open(a->handle, Access::read)), EACCES);
  EXPECT_EQ(code_of(as(alice_).create(b->handle, "x")), EACCES);
  EXPECT_EQ(code_of(as(alice_).lookup(b->handle, "x")), EACCES);
  EXPECT_EQ(code_of(as(alice_).call({.op = Op::readdir, .handle = b->handle})), EACCES);
  EXPECT_TRUE(as(root_).open(a->handle, Access::both));
}

TEST_P(PosixIdentity, GroupsCount) {
  auto file = as(root_).create("shared", 0660);
  SetAttr set{.what = SetAttr::kUid | SetAttr::kGid, .uid = kAlice, .gid = kTeam};
  ASSERT_TRUE(rig_->call({.op = Op::setattr, .handle = file->handle, .set = set}));
  EXPECT_EQ(code_of(as(bob_).open(file->handle, Access::both)), EACCES);
  EXPECT_TRUE(as(bob_in_team_).open(file->handle, Access::both));
  EXPECT_EQ(code_of(as(bob_).open(file->handle, Access::both)), EACCES);
}

TEST_P(PosixIdentity, OnlyOwnersChangeAttributes) {
  auto a = as(alice_).create("a", 0644);
  SetAttr mode{.what = SetAttr::kMode, .mode = 0666};
  EXPECT_EQ(code_of(as(bob_).call({.op = Op::setattr, .handle = a->handle, .set = mode})), EPERM);
  SetAttr owner{.what = SetAttr::kUid, .uid = kAlice};
  EXPECT_EQ(code_of(as(bob_).call({.op = Op::setattr, .handle = a->handle, .set = owner})), EPERM);
  EXPECT_EQ(code_of(as(bob_).call({.op = Op::resize, .handle = a->handle})), EACCES);
  EXPECT_EQ(code_of(as(bob_).remove(rig_->root, "a")), EPERM);  // by the sticky bit
  EXPECT_EQ(code_of(as(bob_).rename(rig_->root, "a", rig_->root, "b")), EPERM);
  EXPECT_EQ(code_of(as(bob_).call(
                {.op = Op::xattr_set, .handle = a->handle, .name = "trusted.x", .data = "x"})),
            EOPNOTSUPP);
  EXPECT_TRUE(as(alice_).call({.op = Op::setattr, .handle = a->handle, .set = mode}));
}

TEST_P(PosixIdentity, ARightIsItsOwners) {
  auto a = as(alice_).create("a", 0666);
  EXPECT_EQ(code_of(as(bob_).write(a->handle, a->right, 0, "x")), EACCES);
  EXPECT_EQ(code_of(as(bob_).close(a->handle, a->right)), EACCES);
  rig_->restart();
  EXPECT_EQ(code_of(as(bob_).write(a->handle, a->right, 0, "x")), EACCES);
  EXPECT_TRUE(as(alice_).write(a->handle, a->right, 0, "x"));
}

TEST_P(PosixIdentity, ACreatorWritesWhatItMadeReadOnly) {
  auto a = as(alice_).create("a", 0444);
  ASSERT_TRUE(as(alice_).write(a->handle, a->right, 0, "mine"));
  EXPECT_EQ(code_of(as(alice_).open(a->handle, Access::write)), EACCES);
  EXPECT_EQ(code_of(as(bob_).open(a->handle, Access::write)), EACCES);
  EXPECT_TRUE(as(bob_).open(a->handle, Access::read));
  rig_->restart();
  EXPECT_TRUE(as(alice_).write(a->handle, a->right, 4, "!"));
  EXPECT_EQ(content_of(rig_->path("a")), "mine!");
}

TEST_P(PosixIdentity, WritingClearsSetIdBits) {
  for (const CallerRef& who : {alice_, root_}) {
    const std::string name = fmt::format("s{}", who->uid);
    auto a = as(who).create(name, 0755);
    for (const bool by_size : {false, true}) {
      ASSERT_EQ(::chmod(rig_->path(name).c_str(), 06755), 0);
      if (by_size) {
        ASSERT_TRUE(rig_->call(
            {.op = Op::resize, .handle = a->handle, .right = a->right, .length = Length(1)}));
      } else {
        ASSERT_TRUE(rig_->write(a->handle, a->right, 0, "code"));
      }
      EXPECT_EQ(rig_->getattr(a->handle)->attr.mode, 0755u) << name << by_size;
    }
  }
}

TEST_P(PosixIdentity, RootMaySetThem) {
  auto a = as(alice_).create("a", 0755);
  SetAttr mode{.what = SetAttr::kMode, .mode = 06755};
  ASSERT_TRUE(as(root_).call({.op = Op::setattr, .handle = a->handle, .set = mode}));
  EXPECT_EQ(rig_->getattr(a->handle)->attr.mode, 06755u);
}

TEST_P(PosixIdentity, RemovalOfAnOpenFileIsTheKernelsDecision) {
  auto a = as(alice_).create("a", 0600);
  ASSERT_TRUE(as(alice_).write(a->handle, a->right, 0, "text"));
  EXPECT_EQ(code_of(as(bob_).remove(rig_->root, "a")), EPERM);
  auto b = as(bob_).create("b");
  EXPECT_EQ(code_of(as(bob_).rename(rig_->root, "b", rig_->root, "a")), EPERM);
  // Nothing is left of the attempts, and the file is as it was.
  EXPECT_TRUE(std::filesystem::is_empty(rig_->path(".forebay/unlinked")));
  EXPECT_EQ(rig_->lookup("a")->attr.links, 1u);
  ASSERT_TRUE(as(alice_).remove(rig_->root, "a"));
  EXPECT_EQ(*as(alice_).read(a->handle, a->right, 0, 9), "text");
  // Others cannot reach the folder, even on the server's own machine.
  struct stat s;
  ASSERT_EQ(::stat(rig_->path(".forebay").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
  EXPECT_EQ(s.st_uid, 0u);
  EXPECT_EQ(code_of(as(bob_).open(a->handle, Access::read)), EACCES);
}

TEST(PosixThreadIdentity, CallLeavesTheThreadAsItWas) {
  if (!posix::Identity::probe().privileged()) GTEST_SKIP() << "needs root";
  PosixRig rig;
  ASSERT_EQ(::chmod(rig.path("").c_str(), 0777), 0);
  rig.caller = caller_of(kAlice, kAlice, {kTeam});
  const CallerRef before = this_process_caller();
  ASSERT_TRUE(rig.create("a"));
  EXPECT_EQ(::setfsuid(static_cast<uid_t>(-1)), static_cast<int>(before->uid));
  EXPECT_EQ(::setfsgid(static_cast<gid_t>(-1)), static_cast<int>(before->gid));
  EXPECT_EQ(*this_process_caller(), *before);
}

TEST(PosixThreadIdentity, ThreadsAreApart) {
  if (!posix::Identity::probe().privileged()) GTEST_SKIP() << "needs root";
  PosixRig rig;
  ASSERT_EQ(::chmod(rig.path("").c_str(), 0777), 0);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&rig, t] {
      for (uint32_t i = 0; i < 50; ++i) {
        const uint32_t uid = kAlice + (t + i) % 3;
        Request r{.op = Op::create,
                  .caller = caller_of(uid, uid, {kTeam + i % 2}),
                  .handle = rig.root,
                  .name = fmt::format("f{}.{}", t, i)};
        auto made = rig.store->Store::call(std::move(r));
        ASSERT_TRUE(made) << made.error().message();
        EXPECT_EQ(made->attr.uid, uid);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// In a child that is nobody, because a process cannot come back from there.
TEST(PosixUnprivileged, ServesItsOwnUserOnly) {
  if (::geteuid() != 0) {
    PosixRig rig;
    EXPECT_TRUE(rig.create("mine"));
    rig.caller = caller_of(::geteuid() + 1, ::getegid());
    EXPECT_EQ(code_of(rig.getattr(rig.root)), EPERM);
    return;
  }
  TempDir temp;
  ASSERT_EQ(::chmod(temp.path().c_str(), 0755), 0);
  const std::string directory = temp / "export";
  ASSERT_EQ(::mkdir(directory.c_str(), 0755), 0);
  ASSERT_EQ(::chown(directory.c_str(), kAlice, kAlice), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto run = [&] {
      if (::setgroups(0, nullptr) || ::setresgid(kAlice, kAlice, kAlice) ||
          ::setresuid(kAlice, kAlice, kAlice))
        return 1;
      CounterSet counters;
      PosixOptions options;
      options.directory = directory;
      options.descriptors = 8;
      auto store = PosixStore::open(options, counters);
      if (!store) return 2;
      if ((*store)->kernel_handles()) return 3;
      const Handle root = *(*store)->root();
      const auto call = [&](Request r) {
        if (!r.caller) r.caller = this_process_caller();
        return (*store)->call(std::move(r));
      };
      // Made read-only, written by its creator, although many others come in between.
      auto made = call(
          {.op = Op::create, .handle = root, .name = "mine", .access = Access::both, .mode = 0444});
      if (!made) return 4;
      for (int i = 0; i < 30; ++i) {
        auto other = call({.op = Op::create,
                           .handle = root,
                           .name = fmt::format("o{}", i),
                           .access = Access::both,
                           .mode = 0600});
        if (!other) return 5;
      }
      const std::string text = "text";
      Request write{.op = Op::write,
                    .handle = made->handle,
                    .right = made->right,
                    .file = Extents({Offset(0), Length(4)}),
                    .memory = Memory::of(std::as_bytes(std::span(text)))};
      if (!call(write)) return 6;
      if (!call({.op = Op::remove, .handle = root, .name = "mine"})) return 7;
      if (!call(write)) return 8;
      if (!call({.op = Op::close, .handle = made->handle, .right = made->right})) return 9;
      if (code_of(call({.op = Op::getattr, .caller = caller_of(kBob, kBob), .handle = root})) !=
          EPERM)
        return 10;
      if (code_of(call({.op = Op::getattr, .caller = caller_of(0, 0), .handle = root})) != EPERM)
        return 11;
      return 0;
    };
    ::_exit(run());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step that failed";
}

}  // namespace
}  // namespace forebay
