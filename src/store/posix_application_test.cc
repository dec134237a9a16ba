// The store inside an application's process: it changes nothing of that process and leaves nothing.
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <filesystem>

#include "store/posix_testing.h"

namespace forebay {
namespace {

PosixOptions in_application() {
  PosixOptions options;
  options.in_application = true;
  return options;
}

size_t threads() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

// Who this thread is, and what it may do.
std::vector<uint32_t> credentials() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct caps[2] = {};
  FOREBAY_ASSERT(::syscall(SYS_capget, &header, caps) == 0);
  std::vector<uint32_t> all = {caps[0].effective, caps[1].effective,
                               static_cast<uint32_t>(::syscall(SYS_setfsuid, -1)),
                               static_cast<uint32_t>(::syscall(SYS_setfsgid, -1))};
  std::vector<gid_t> groups(static_cast<size_t>(::getgroups(0, nullptr)));
  FOREBAY_ASSERT(::getgroups(static_cast<int>(groups.size()), groups.data()) >= 0);
  all.insert(all.end(), groups.begin(), groups.end());
  return all;
}

// As containers do.
TEST(PosixInApplication, SingleFilesMayBeMounted) {
  PosixRig rig(in_application());
  const auto mounted = [&](const std::string& from, const std::string& name) {
    put_file(rig.path(name), "under it");
    return ::mount(from.c_str(), rig.path(name).c_str(), nullptr, MS_BIND, nullptr) == 0;
  };
  put_file(rig.outside("other"), "text");
  if (!own_mounts() || !mounted(rig.outside("other"), "file") || !mounted("/proc/version", "far"))
    GTEST_SKIP() << "cannot mount here: " << errno_name(errno);
  rig.restart();  // in its own name space of mounts
  auto found = rig.lookup("file");
  ASSERT_TRUE(found) << found.error().message();
  auto file = rig.open(found->handle, Access::both);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(*rig.read(found->handle, file->right, 0, 9), "text");
  EXPECT_TRUE(rig.write(found->handle, file->right, 4, "ure"));
  EXPECT_TRUE(rig.close(found->handle, file->right));
  EXPECT_EQ(content_of(rig.outside("other")), "texture");
  auto again = rig.create("file");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->attr.size, 7u);
  EXPECT_TRUE(rig.close(again->handle, again->right));
  EXPECT_EQ(code_of(rig.remove(rig.root, "file")), EBUSY);
  // What is known of the folder's file system would not hold.
  EXPECT_EQ(code_of(rig.lookup("far")), rig.store->local() ? EXDEV : 0);
  rig.stop();
  EXPECT_EQ(::umount2(rig.path("file").c_str(), MNT_DETACH), 0);
  EXPECT_EQ(::umount2(rig.path("far").c_str(), MNT_DETACH), 0);
}

// Of this process, and for good.
bool forbid_openat2(uint32_t error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool works() {
  PosixRig rig(in_application());
  const auto link_error = [&] {
    return ::symlink("file", rig.path("link").c_str()) != 0
               ? EIO
               : code_of(rig.open(rig.lookup("link")->handle, Access::read));
  };
  const auto file = rig.create("file");
  if (!file || !rig.write(file->handle, file->right, 0, "text")) return false;
  if (!rig.close(file->handle, file->right) || link_error() != ELOOP) return false;
  const auto again = rig.open(file->handle, Access::both);
  return again && *rig.read(file->handle, again->right, 0, 9) == "text" &&
         rig.close(file->handle, again->right) && rig.remove(rig.root, "file");
}

// Kernels before 5.6 have none (RHEL 8), and containers may not let it through.
TEST(PosixInApplication, WorksWithoutOpenat2) {
  enum { kGood, kBad, kCannotForbid };
  for (const uint32_t error : {uint32_t{ENOSYS}, uint32_t{EPERM}}) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(!forbid_openat2(error) ? kCannotForbid : works() ? kGood : kBad);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kCannotForbid) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(WEXITSTATUS(status), kGood) << errno_name(static_cast<int>(error));
  }
}

TEST(PosixInApplication, ChangesNothingOfTheProcess) {
  const auto before = credentials();
  const size_t running = threads();
  PosixOptions options = in_application();
  options.direct = true;  // whose ring has a thread
  PosixRig rig(options);
  EXPECT_EQ(threads(), running);
  rig.through_submit = true;
  auto file = rig.create("f");
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(threads(), running);
  rig.through_submit = false;
  EXPECT_TRUE(rig.write(file->handle, file->right, 0, "abc"));
  EXPECT_EQ(*rig.read(file->handle, file->right, 0, 9), "abc");
  EXPECT_TRUE(rig.rename(rig.root, "f", rig.root, "g"));
  EXPECT_TRUE(rig.close(file->handle, file->right));
  EXPECT_EQ(threads(), running);
  EXPECT_EQ(credentials(), before);
  rig.through_submit = true;  // threads when there is work for them
  auto again = rig.open(file->handle, Access::both);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE(rig.write(file->handle, again->right, 0, "abc"));
  EXPECT_GT(threads(), running);
  EXPECT_EQ(credentials(), before);
}

TEST(PosixInApplication, ServesThisUserOnly) {
  PosixRig rig(in_application());
  rig.caller = caller_of(::geteuid() + 1, ::getegid());
  EXPECT_EQ(code_of(rig.create("f")), EPERM);
}

TEST(PosixInApplication, TheUmaskHolds) {
  PosixRig rig(in_application());
  const mode_t before = ::umask(027);
  EXPECT_EQ(rig.create("f", 0666)->attr.mode, 0640u);
  EXPECT_EQ(rig.mkdir(rig.root, "d", 0777)->attr.mode, 0750u);
  EXPECT_EQ(::umask(before), 027u);
}

// Programs remove files that they have written: the space, and the memory, are free then.
TEST(PosixInApplication, AFileThatIsClosedIsInNobodysHand) {
  const auto in_hand = [](const std::string& path) {
    size_t count = 0;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += std::filesystem::read_symlink(fd, gone).string().starts_with(path);
    }
    return count;
  };
  PosixOptions options = in_application();
  options.forgets_closed = true;
  PosixRig rig(options);
  const std::string path = rig.path("f");
  auto file = rig.create("f");
  ASSERT_TRUE(file) << file.error().message();
  auto second = rig.open(file->handle, Access::read);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_TRUE(rig.write(file->handle, file->right, 0, "abc"));
  EXPECT_TRUE(rig.close(file->handle, file->right));
  EXPECT_GT(in_hand(path), 0u);
  EXPECT_EQ(*rig.read(file->handle, second->right, 0, 9), "abc");
  EXPECT_TRUE(rig.close(file->handle, second->right));
  EXPECT_EQ(in_hand(path), 0u);
  auto again = rig.open(file->handle, Access::read);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(*rig.read(file->handle, again->right, 0, 9), "abc");
}

TEST(PosixInApplication, DescriptorsAtHandAreThoseOfTheRight) {
  PosixOptions options = in_application();
  options.forgets_closed = true;
  PosixRig rig(options);
  auto both = rig.create("f");
  ASSERT_TRUE(both) << both.error().message();
  const auto at_hand = [&](Op op, const Right& right) {
    return rig.store->at_hand(
        {.op = op, .caller = rig.caller, .handle = both->handle, .right = right});
  };
  auto reads = rig.open(both->handle, Access::read);
  ASSERT_TRUE(reads) << reads.error().message();
  const bool local = rig.store->local();
  EXPECT_EQ(at_hand(Op::read, both->right).lock() != nullptr, local);
  EXPECT_EQ(at_hand(Op::read, reads->right).lock() != nullptr, local);
  EXPECT_EQ(at_hand(Op::write, reads->right).lock(), nullptr);
  EXPECT_EQ(at_hand(Op::write, Right{"forged"}).lock(), nullptr);
  const auto kept = at_hand(Op::write, both->right);
  if (const auto fd = kept.lock()) {
    EXPECT_EQ(::pwrite(fd->get(), "abc", 3, 0), 3);
  }
  EXPECT_EQ(*rig.read(both->handle, reads->right, 0, 9), local ? "abc" : "");
  EXPECT_TRUE(rig.close(both->handle, both->right));
  EXPECT_TRUE(rig.close(both->handle, reads->right));
  EXPECT_EQ(kept.lock(), nullptr);
  options.direct = true;
  PosixRig direct(options);
  auto file = direct.create("f");
  ASSERT_TRUE(file) << file.error().message();
  const Request write{
      .op = Op::write, .caller = direct.caller, .handle = file->handle, .right = file->right};
  EXPECT_EQ(direct.store->at_hand(write).lock(), nullptr);
}

TEST(PosixInApplication, AServersDescriptorsAreNot) {
  PosixRig rig;
  auto file = rig.create("f");
  ASSERT_TRUE(file) << file.error().message();
  const Request read{
      .op = Op::read, .caller = rig.caller, .handle = file->handle, .right = file->right};
  EXPECT_EQ(rig.store->at_hand(read).lock(), nullptr);
}

TEST(PosixInApplication, AFileThatIsRemovedWhileOpenLeavesNothing) {
  PosixRig rig(in_application());
  auto file = rig.create("f");
  auto other = rig.create("other");
  ASSERT_TRUE(rig.write(file->handle, file->right, 0, "abc"));
  ASSERT_TRUE(rig.remove(rig.root, "f"));
  ASSERT_TRUE(rig.rename(rig.root, "other", rig.root, "new"));
  EXPECT_EQ(*rig.read(file->handle, file->right, 0, 9), "abc");
  EXPECT_EQ(rig.getattr(file->handle)->attr.links, 0u);
  EXPECT_FALSE(std::filesystem::exists(rig.path(kOwnFolder)));
  // Its rights still are what opens it.
  auto second = rig.open(file->handle, Access::both);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_TRUE(rig.close(file->handle, file->right));
  EXPECT_TRUE(rig.write(file->handle, second->right, 3, "def"));
  EXPECT_EQ(*rig.read(file->handle, second->right, 0, 9), "abcdef");
  EXPECT_TRUE(rig.close(file->handle, second->right));
  EXPECT_EQ(code_of(rig.getattr(file->handle)), ESTALE);
  EXPECT_TRUE(rig.close(other->handle, other->right));
}

TEST(PosixInApplication, ARemovedFileOutlivesACrowd) {
  PosixOptions options = in_application();
  options.descriptors = 16;
  PosixRig rig(options);
  auto file = rig.create("f");
  ASSERT_TRUE(rig.write(file->handle, file->right, 0, "abc"));
  const auto crowd = [&](const std::string& name) {
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(rig.create(name + std::to_string(i)));
  };
  crowd("before");
  ASSERT_TRUE(rig.remove(rig.root, "f"));
  crowd("after");
  EXPECT_EQ(*rig.read(file->handle, file->right, 0, 9), "abc");
  EXPECT_TRUE(rig.close(file->handle, file->right));
  EXPECT_EQ(code_of(rig.getattr(file->handle)), ESTALE);
}

TEST(PosixInApplication, HandlesAndRightsAreOfOneStore) {
  PosixRig rig(in_application());
  auto file = rig.create("f");
  Handle damaged = file->handle;
  damaged.bytes[damaged.bytes.size() / 2] ^= 1;
  EXPECT_EQ(code_of(rig.getattr(damaged)), EBADF);
  Right wrong = file->right;
  wrong.bytes[3] ^= 1;
  EXPECT_EQ(code_of(rig.write(file->handle, wrong, 0, "x")), EBADF);
  rig.restart();
  EXPECT_EQ(code_of(rig.getattr(file->handle)), EBADF);
}

TEST(PosixInApplication, ADirectoryThatCanOnlyBeSearched) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user is needed, to whom the directory is closed";
  TempDir temp;
  ASSERT_EQ(::chmod(temp.path().c_str(), 0711), 0);
  put_file(temp / "f", "text");
  ASSERT_EQ(::chmod((temp / "f").c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(61001) || ::setuid(61001)) ::_exit(1);
    PosixOptions options = in_application();
    options.directory = temp.path();
    CounterSet counters;
    auto store = PosixStore::open(options, counters);
    if (!store) ::_exit(2);
    auto file = (*store)->call({.op = Op::create,
                                .caller = this_process_caller(),
                                .handle = *(*store)->root(),
                                .name = "f",
                                .access = Access::both,
                                .mode = 0644});
    ::_exit(file && file->attr.size == 4 ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace forebay
