// The posix store as a whole, in each way it may be run: with kernel and with path handles, on the
// caller's thread and through submit() on the pool.
#include "store/posix.h"

#include <dirent.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "store/posix_testing.h"

namespace forebay {
namespace {

struct Way {
  const char* name;
  bool path_handles, pool;
};

class PosixStoreTest : public testing::TestWithParam<Way> {
 protected:
  static PosixOptions options(PosixOptions o = {}) {
    o.force_path_handles = GetParam().path_handles;
    o.force_pool = GetParam().pool;
    return o;
  }
  void SetUp() override { rig_.through_submit = GetParam().pool; }

  PosixRig rig_{options()};
};

INSTANTIATE_TEST_SUITE_P(Ways, PosixStoreTest,
                         testing::Values(Way{"kernel", false, false}, Way{"path", true, false},
                                         Way{"kernel_pool", false, true}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(PosixStoreTest, WritesAndReadsBack) {
  auto made = rig_.create("a");
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->attr.fs_id, 7u);
  EXPECT_EQ(made->attr.mode, 0644u);
  ASSERT_EQ(rig_.write(made->handle, made->right, 3, "hello")->count, 5u);
  EXPECT_EQ(*rig_.read(made->handle, made->right, 0, 100), std::string("\0\0\0hello", 8));
  EXPECT_EQ(*rig_.read(made->handle, made->right, 8, 100), "");
  EXPECT_EQ(*rig_.read(made->handle, made->right, 1000, 100), "");
  EXPECT_EQ(content_of(rig_.path("a")), std::string("\0\0\0hello", 8));
  EXPECT_EQ(rig_.getattr(made->handle)->attr.size, 8u);
  EXPECT_EQ(rig_.lookup("a")->handle, made->handle);
}

TEST_P(PosixStoreTest, HandlesAndRightsOutliveARestart) {
  auto made = rig_.create("a", 0600);
  auto directory = rig_.mkdir(rig_.root, "d");
  ASSERT_TRUE(rig_.write(made->handle, made->right, 0, "before"));
  rig_.restart();
  EXPECT_EQ(rig_.getattr(made->handle)->attr.size, 6u);
  EXPECT_EQ(*rig_.read(made->handle, made->right, 0, 6), "before");
  ASSERT_TRUE(rig_.write(made->handle, made->right, 0, "after!"));
  EXPECT_EQ(content_of(rig_.path("a")), "after!");
  EXPECT_TRUE(rig_.create(directory->handle, "x"));
}

TEST_P(PosixStoreTest, EachRightHasItsOwnDescriptor) {
  const Reply made = rig_.create("a").value();
  const Right write_only = rig_.open(made.handle, Access::write).value().right;
  ASSERT_TRUE(rig_.write(made.handle, made.right, 0, "one"));
  rig_.restart();
  ASSERT_TRUE(rig_.write(made.handle, write_only, 0, "two"));
  EXPECT_EQ(rig_.read(made.handle, made.right, 0, 3).value(), "two");
}

TEST_P(PosixStoreTest, AnotherKeyKnowsNeither) {
  auto made = rig_.create("a");
  rig_.stop();
  ASSERT_EQ(::unlink(rig_.options().key_file.c_str()), 0);
  rig_.start();
  EXPECT_EQ(code_of(rig_.getattr(made->handle)), EBADF);
  const Handle now = rig_.lookup("a")->handle;
  EXPECT_EQ(code_of(rig_.read(now, made->right, 0, 1)), EBADF);
}

TEST_P(PosixStoreTest, ForgedHandlesAndRightsAreRefused) {
  auto a = rig_.create("a"), b = rig_.create("b");
  for (size_t i = 0; i < a->handle.bytes.size(); i += 5) {
    Handle forged = a->handle;
    forged.bytes[i] = static_cast<char>(forged.bytes[i] ^ 4);
    EXPECT_EQ(code_of(rig_.getattr(forged)), EBADF) << i;
  }
  for (size_t i = 0; i < a->right.bytes.size(); i += 3) {
    Right forged = a->right;
    forged.bytes[i] = static_cast<char>(forged.bytes[i] ^ 4);
    EXPECT_EQ(code_of(rig_.read(a->handle, forged, 0, 1)), EBADF) << i;
  }
  EXPECT_EQ(code_of(rig_.read(b->handle, a->right, 0, 1)), EBADF);
  EXPECT_EQ(code_of(rig_.read(a->handle, Right{a->handle.bytes}, 0, 1)), EBADF);
  EXPECT_EQ(code_of(rig_.getattr(Handle{a->right.bytes})), EBADF);
  auto reading = rig_.open(a->handle, Access::read);
  EXPECT_EQ(code_of(rig_.write(a->handle, reading->right, 0, "x")), EBADF);
  EXPECT_EQ(code_of(rig_.close(a->handle, b->right)), EBADF);
}

TEST_P(PosixStoreTest, AHandleOfAnotherExportIsRefused) {
  PosixRig other(options());
  EXPECT_EQ(code_of(rig_.getattr(other.root)), EBADF);
}

TEST_P(PosixStoreTest, AClosedRightIsOpenedAgainByUse) {
  auto made = rig_.create("a");
  ASSERT_TRUE(rig_.close(made->handle, made->right));
  EXPECT_TRUE(rig_.close(made->handle, made->right));
  EXPECT_TRUE(rig_.write(made->handle, made->right, 0, "x"));
}

TEST_P(PosixStoreTest, GoneIsStale) {
  auto made = rig_.create(rig_.root, "a", 0644, Access::none);
  ASSERT_TRUE(made->right.empty());
  ASSERT_TRUE(rig_.remove(rig_.root, "a"));
  rig_.restart();
  EXPECT_EQ(code_of(rig_.getattr(made->handle)), ESTALE);
  auto again = rig_.create("a");
  EXPECT_EQ(code_of(rig_.getattr(made->handle)), ESTALE);
  EXPECT_NE(again->handle, made->handle);
}

TEST_P(PosixStoreTest, CreateOfAFileThatExists) {
  auto made = rig_.create("a");
  ASSERT_TRUE(rig_.write(made->handle, made->right, 0, "text"));
  EXPECT_EQ(code_of(rig_.create(rig_.root, "a", 0644, Access::read, kFlagExclusive)), EEXIST);
  auto kept = rig_.create(rig_.root, "a", 0600, Access::read);
  EXPECT_EQ(kept->handle, made->handle);
  EXPECT_EQ(kept->attr.size, 4u);
  EXPECT_EQ(kept->attr.mode, 0644u);
  auto cut = rig_.create(rig_.root, "a", 0600, Access::write, kFlagTruncate);
  EXPECT_EQ(cut->attr.size, 0u);
  ASSERT_TRUE(rig_.mkdir(rig_.root, "d"));
  EXPECT_EQ(code_of(rig_.create("d")), EISDIR);
  ASSERT_EQ(::symlink("a", rig_.path("l").c_str()), 0);
  EXPECT_EQ(code_of(rig_.create("l")), ELOOP);
}

TEST_P(PosixStoreTest, FifosAreShownAndNeverOpened) {
  ASSERT_EQ(::mkfifo(rig_.path("f").c_str(), 0666), 0);
  auto found = rig_.lookup("f");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->attr.type, FileType::fifo);
  EXPECT_EQ(code_of(rig_.open(found->handle, Access::read)), EOPNOTSUPP);
  EXPECT_EQ(code_of(rig_.open(found->handle, Access::write)), EOPNOTSUPP);
  EXPECT_EQ(code_of(rig_.create(rig_.root, "f", 0644, Access::write)), EOPNOTSUPP);
  EXPECT_EQ(code_of(rig_.call({.op = Op::commit, .handle = found->handle})), EOPNOTSUPP);
  EXPECT_EQ(code_of(rig_.call({.op = Op::resize, .handle = found->handle})), EINVAL);
}

TEST_P(PosixStoreTest, OnlyFilesAreOpened) {
  EXPECT_EQ(code_of(rig_.open(rig_.root, Access::read)), EISDIR);
  auto link = rig_.call({.op = Op::symlink, .handle = rig_.root, .name = "l", .data = "/etc"});
  ASSERT_TRUE(link);
  EXPECT_EQ(code_of(rig_.open(link->handle, Access::read)), ELOOP);
  EXPECT_EQ(rig_.call({.op = Op::readlink, .handle = link->handle})->data, "/etc");
  EXPECT_EQ(code_of(rig_.call({.op = Op::readlink, .handle = rig_.root})), EINVAL);
}

TEST_P(PosixStoreTest, RenamesAreFollowed) {
  auto d = rig_.mkdir(rig_.root, "d");
  auto file = rig_.create(d->handle, "a");
  auto other = rig_.create(rig_.root, "b");
  ASSERT_TRUE(rig_.rename(d->handle, "a", rig_.root, "c"));
  ASSERT_TRUE(rig_.rename(rig_.root, "d", rig_.root, "e"));
  ASSERT_TRUE(rig_.rename(rig_.root, "c", d->handle, "a2"));
  ASSERT_TRUE(rig_.rename(d->handle, "a2", rig_.root, "b", kFlagExchange));
  EXPECT_EQ(rig_.getattr(file->handle)->attr.file_id, rig_.lookup("b")->attr.file_id);
  EXPECT_EQ(rig_.getattr(other->handle)->attr.file_id, rig_.lookup("e/a2")->attr.file_id);
  EXPECT_EQ(code_of(rig_.rename(rig_.root, "b", rig_.root, "e", kFlagNoReplace)), EEXIST);
}

TEST_P(PosixStoreTest, FewDescriptorsServeManyFiles) {
  rig_.stop();
  rig_.options().descriptors = 4;
  rig_.start();
  std::vector<Reply> files;
  for (int i = 0; i < 50; ++i) {
    auto made = rig_.create(fmt::format("f{}", i), 0444);
    ASSERT_TRUE(made) << made.error().message();
    files.push_back(std::move(*made));
  }
  const auto open_now = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_now();
  for (int round = 0; round < 3; ++round) {
    for (Reply& f : files) {
      const std::string text = fmt::format("text {}", round);
      auto wrote = rig_.write(f.handle, f.right, 0, text);
      // A user's server cannot open a file again whose mode forbids it; a few stay open (pinned).
      if (!wrote && ::geteuid() != 0) {
        EXPECT_EQ(code_of(wrote), EACCES);
        continue;
      }
      ASSERT_TRUE(wrote) << wrote.error().message();
      EXPECT_EQ(*rig_.read(f.handle, f.right, 0, 99), text);
      EXPECT_EQ(rig_.getattr(f.handle)->attr.size, text.size());
    }
  }
  EXPECT_LE(open_now(), before + 4);
  EXPECT_GT(rig_.counters.get("posix.evictions").get(), 10u);
  for (Reply& f : files) EXPECT_TRUE(rig_.close(f.handle, f.right));
}

TEST_P(PosixStoreTest, EvictedPathHandlesFollowRenames) {
  rig_.stop();
  rig_.options().descriptors = 4;
  rig_.start();
  auto d = rig_.mkdir(rig_.root, "d");
  auto file = rig_.create(d->handle, "a");
  auto twin = rig_.create(rig_.root, "twin");
  ASSERT_TRUE(rig_.rename(rig_.root, "d", rig_.root, "e"));
  ASSERT_TRUE(rig_.rename(d->handle, "a", rig_.root, "twin", kFlagExchange));
  for (int i = 0; i < 20; ++i) {
    auto more = rig_.create(fmt::format("f{}", i));
    ASSERT_TRUE(rig_.close(more->handle, more->right));
  }
  EXPECT_EQ(rig_.getattr(file->handle)->attr.file_id, file->attr.file_id);
  EXPECT_EQ(rig_.getattr(twin->handle)->attr.file_id, twin->attr.file_id);
  EXPECT_EQ(rig_.getattr(d->handle)->attr.file_id, d->attr.file_id);
}

TEST_P(PosixStoreTest, NamesOf255Bytes) {
  const std::string longest(255, 'n');
  EXPECT_TRUE(rig_.create(longest));
  EXPECT_TRUE(rig_.lookup(longest));
  EXPECT_EQ(code_of(rig_.create(std::string(256, 'n'))), ENAMETOOLONG);
}

TEST_P(PosixStoreTest, DeeperThanAPath) {
  const std::string name(250, 'd');
  Handle at = rig_.root;
  int depth = 0;
  int code = 0;
  for (; depth < 24 && code == 0; ++depth) {
    auto made = rig_.mkdir(at, name);
    code = code_of(made);
    if (made) at = made->handle;
  }
  if (rig_.store->kernel_handles()) {
    ASSERT_EQ(code, 0);
    auto file = rig_.create(at, "deep");
    ASSERT_TRUE(file);
    ASSERT_TRUE(rig_.write(file->handle, file->right, 0, "deep"));
    rig_.restart();
    EXPECT_EQ(*rig_.read(file->handle, file->right, 0, 4), "deep");
  } else {
    EXPECT_EQ(code, ENAMETOOLONG);
    EXPECT_GT(depth, 14);
  }
}

TEST_P(PosixStoreTest, ListsDirectories) {
  std::set<std::string> want;
  for (int i = 0; i < 300; ++i) {
    const std::string name = fmt::format("file-{}", i);
    put_file(rig_.path(name), "x");
    want.insert(name);
  }
  // An open file that is removed makes the own folder, which must not show.
  auto gone = rig_.create("gone");
  ASSERT_TRUE(rig_.remove(rig_.root, "gone"));
  ASSERT_TRUE(std::filesystem::exists(rig_.path(kOwnFolder)));
  for (const uint32_t flags : {0u, uint32_t{kFlagPlus}}) {
    std::set<std::string> seen;
    uint64_t cookie = 0;
    int calls = 0;
    for (bool end = false; !end; ++calls) {
      auto reply = rig_.call({.op = Op::readdir,
                              .flags = flags,
                              .handle = rig_.root,
                              .length = Length(4000),
                              .cookie = cookie});
      ASSERT_TRUE(reply) << reply.error().message();
      end = reply->end;
      for (const Entry& e : reply->entries) {
        EXPECT_TRUE(seen.insert(e.name).second) << e.name;
        cookie = e.cookie;
        if (flags == 0) continue;
        EXPECT_EQ(rig_.getattr(e.handle)->attr, e.attr);
        EXPECT_EQ(e.attr.type, FileType::file);
      }
    }
    EXPECT_EQ(seen, want);
    EXPECT_GT(calls, 2);
  }
  EXPECT_EQ(code_of(rig_.call({.op = Op::readdir, .handle = rig_.lookup("file-1")->handle})),
            ENOTDIR);
}

TEST_P(PosixStoreTest, AttributesAndSize) {
  auto made = rig_.create("a");
  SetAttr set{.what = SetAttr::kMode | SetAttr::kMtime | SetAttr::kAtimeNow, .mode = 0640};
  set.mtime = {1234, 567};
  auto changed = rig_.call({.op = Op::setattr, .handle = made->handle, .set = set});
  ASSERT_TRUE(changed) << changed.error().message();
  EXPECT_EQ(changed->attr.mode, 0640u);
  EXPECT_EQ(changed->attr.mtime, (FileTime{1234, 567}));
  EXPECT_GT(changed->attr.atime.seconds, 1234);
  auto sized = rig_.call({.op = Op::resize, .handle = made->handle, .length = Length(1000)});
  EXPECT_EQ(sized->attr.size, 1000u);
  sized = rig_.call({.op = Op::resize, .handle = made->handle, .right = made->right});
  EXPECT_EQ(sized->attr.size, 0u);
  EXPECT_EQ(code_of(rig_.call({.op = Op::resize, .handle = rig_.root})), EISDIR);
  EXPECT_TRUE(rig_.call({.op = Op::commit, .handle = made->handle}));
  EXPECT_TRUE(rig_.call(
      {.op = Op::commit, .flags = kFlagDataOnly, .handle = made->handle, .right = made->right}));
  EXPECT_TRUE(rig_.call({.op = Op::commit, .handle = rig_.root}));
  EXPECT_GT(rig_.call({.op = Op::statfs, .handle = rig_.root})->statfs.blocks, 0u);
  EXPECT_EQ(rig_.call({.op = Op::layout, .handle = made->handle})->layout.stripe_count, 1u);
}

TEST_P(PosixStoreTest, HardLinks) {
  auto made = rig_.create("a");
  auto linked =
      rig_.call({.op = Op::link, .handle = made->handle, .handle2 = rig_.root, .name2 = "b"});
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(linked->attr.links, 2u);
  ASSERT_TRUE(rig_.write(made->handle, made->right, 0, "same"));
  EXPECT_EQ(content_of(rig_.path("b")), "same");
  ASSERT_TRUE(rig_.remove(rig_.root, "a"));
  EXPECT_EQ(*rig_.read(made->handle, made->right, 0, 4), "same");
  EXPECT_EQ(rig_.getattr(made->handle)->attr.links, 1u);
  EXPECT_EQ(rig_.lookup("b")->attr.links, 1u);
}

TEST_P(PosixStoreTest, ExtendedAttributes) {
  auto made = rig_.create("a");
  const auto set = [&](const std::string& name, uint32_t flags = 0) {
    return code_of(rig_.call({.op = Op::xattr_set,
                              .flags = flags,
                              .handle = made->handle,
                              .name = name,
                              .data = "value"}));
  };
  if (const int code = set("user.x"); code == EOPNOTSUPP) GTEST_SKIP() << "no user xattrs here";
  EXPECT_EQ(set("user.x", kFlagCreate), EEXIST);
  EXPECT_EQ(set("user.y", kFlagReplace), ENODATA);
  EXPECT_EQ(set("security.x"), EOPNOTSUPP);
  EXPECT_EQ(rig_.call({.op = Op::xattr_get, .handle = made->handle, .name = "user.x"})->data,
            "value");
  EXPECT_EQ(rig_.call({.op = Op::xattr_list, .handle = made->handle})->data,
            std::string("user.x\0", 7));
  ASSERT_TRUE(rig_.call({.op = Op::xattr_remove, .handle = made->handle, .name = "user.x"}));
  EXPECT_EQ(code_of(rig_.call({.op = Op::xattr_get, .handle = made->handle, .name = "user.x"})),
            ENODATA);
}

TEST_P(PosixStoreTest, MalformedRequestsFailTheCheck) {
  EXPECT_EQ(code_of(rig_.call({.op = Op::lookup, .handle = rig_.root})), EINVAL);
  EXPECT_EQ(code_of(rig_.open(rig_.root, Access::none)), EINVAL);
}

// Descriptors of the process run out while the cache is far below its own limit.
TEST(PosixLimits, TooManyOpenFiles) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  PosixRig rig;
  std::vector<Reply> files;
  for (int i = 0; i < 60; ++i) files.push_back(*rig.create(fmt::format("f{}", i)));
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const int full = ::dup(0);
  const auto made = rig.create("one-more");
  const auto wrote = made ? rig.write(made->handle, made->right, 0, "x") : made;
  const auto first = rig.write(files[0].handle, files[0].right, 0, "y");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(full, 0) << "the limit did not bite";
  EXPECT_TRUE(made) << made.error().message();
  EXPECT_TRUE(wrote) << wrote.error().message();
  EXPECT_TRUE(first) << first.error().message();
}

TEST(PosixLimits, AFullQueueIsBusyAndCancelledRequestsDoNotBegin) {
  PosixOptions options;
  options.force_pool = true;
  options.threads = 1;
  options.queue = 2;
  PosixRig rig(options);
  std::promise<void> gate;
  std::shared_future<void> opened(gate.get_future());
  std::promise<void> inside;
  Request r{.op = Op::getattr, .caller = rig.caller, .handle = rig.root};
  // Holds the only thread, as a back end that does not answer would.
  rig.store->submit(Request(r), [&](Result<Reply>) {
    inside.set_value();
    opened.wait();
  });
  inside.get_future().wait();
  std::stop_source cancel;
  std::vector<int> codes(4, -1);
  for (size_t i = 0; i < codes.size(); ++i) {
    Request next = r;
    if (i == 1) next.stop = cancel.get_token();
    rig.store->submit(std::move(next), [&codes, i](Result<Reply> x) { codes[i] = code_of(x); });
  }
  EXPECT_EQ(codes, (std::vector<int>{-1, -1, EBUSY, EBUSY}));
  cancel.request_stop();
  gate.set_value();
  rig.stop();  // waits for all
  EXPECT_EQ(codes, (std::vector<int>{0, ECANCELED, EBUSY, EBUSY}));
}

// One who has filled his line keeps nobody else from having his turn.
TEST(PosixLimits, CallersHaveTheirTurns) {
  PosixOptions options;
  options.force_pool = true;
  options.threads = 1;
  PosixRig rig(options);
  std::promise<void> gate;
  std::shared_future<void> opened(gate.get_future());
  std::promise<void> inside;
  Request r{.op = Op::getattr, .caller = rig.caller, .handle = rig.root};
  rig.store->submit(Request(r), [&](Result<Reply>) {
    inside.set_value();
    opened.wait();
  });
  inside.get_future().wait();
  // In the order in which they end, by the only thread.
  std::vector<int> theirs, honest;
  std::vector<size_t> when;
  for (int i = 0; i < 5000; ++i) {
    rig.store->submit(Request(r), [&](Result<Reply> x) { theirs.push_back(code_of(x)); });
  }
  EXPECT_EQ(theirs, std::vector<int>(5000 - 4096, EBUSY));
  theirs.clear();
  r.caller = std::make_shared<const Caller>(*rig.caller);
  for (int i = 0; i < 3; ++i) {
    rig.store->submit(Request(r), [&](Result<Reply> x) {
      honest.push_back(code_of(x));
      when.push_back(theirs.size());
    });
  }
  gate.set_value();
  rig.stop();
  EXPECT_EQ(theirs, std::vector<int>(4096, 0));
  EXPECT_EQ(honest, std::vector<int>(3, 0));
  EXPECT_EQ(when, (std::vector<size_t>{1, 2, 3}));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space

// The address space that a thread's stack needs is not there, for root neither.
void forbid_threads() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  rlimit limit;
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + 1_MiB;
  ::setrlimit(RLIMIT_AS, &limit);
}
void allow_threads() {
  rlimit limit;
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_AS, &limit);
}

// In a process of its own, which must not die of it.
TEST(PosixLimits, WithoutAThread) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    pthread_attr_t large;  // none of the stacks that threads before have left will do
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, 64_MiB);
    ::pthread_setattr_default_np(&large);
    PosixOptions options;
    options.force_pool = true;
    options.threads = 4;
    PosixRig rig(options);
    const auto ask = [&] {
      std::promise<int> answer;
      rig.store->submit({.op = Op::getattr, .caller = rig.caller, .handle = rig.root},
                        [&](Result<Reply> x) { answer.set_value(code_of(x)); });
      return answer.get_future().get();
    };
    forbid_threads();
    const int refused = ask();
    allow_threads();
    const int first = ask();
    forbid_threads();
    // The thread that there is does what comes, however much it is.
    std::atomic<int> good{0};
    for (int i = 0; i < 100; ++i) {
      rig.store->submit({.op = Op::getattr, .caller = rig.caller, .handle = rig.root},
                        [&](Result<Reply> x) { good += code_of(x) == 0; });
    }
    allow_threads();
    rig.stop();
    ::_exit(refused != EAGAIN ? 1 : first != 0 ? 2 : good != 100 ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

#endif

TEST(PosixOpen, SaysWhatIsWrong) {
  TempDir temp;
  CounterSet counters;
  PosixOptions options;
  options.directory = temp / "absent";
  auto missing = PosixStore::open(options, counters);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ENOENT);
  EXPECT_THAT(missing.error().message(), testing::HasSubstr("absent"));
  put_file(temp / "file", "x");
  options.directory = temp / "file";
  EXPECT_EQ(code_of(PosixStore::open(options, counters)), ENOTDIR);
  options.directory = temp.path();
  options.key_file = temp / "no/such/folder/key";
  EXPECT_FALSE(PosixStore::open(options, counters));
}

// Threads that look up, open, write, rename, remove and close a few files at once, with a cache too
// small for them: nothing breaks, and what is left is consistent.
TEST(PosixStress, ManyThreads) {
  for (const bool path_handles : {false, true}) {
    PosixOptions options;
    options.descriptors = 8;
    options.force_path_handles = path_handles;
    PosixRig rig(options);
    const uint64_t seed = test_seed();
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&rig, seed, t, path_handles] {
        std::mt19937_64 random(seed + t);
        for (int i = 0; i < 300; ++i) {
          const std::string name = fmt::format("f{}", random() % 6);
          auto made = rig.store->Store::call({.op = Op::create,
                                              .caller = rig.caller,
                                              .handle = rig.root,
                                              .name = name,
                                              .access = Access::both,
                                              .mode = 0644});
          ASSERT_TRUE(made) << made.error().message();
          const auto wrote = rig.write(made->handle, made->right, random() % 100, "text");
          const auto read = rig.read(made->handle, made->right, 0, 200);
          if (path_handles) {
            for (int code : {code_of(wrote), code_of(read)})
              ASSERT_TRUE(code == 0 || code == ESTALE) << code;
          } else {
            ASSERT_TRUE(wrote) << wrote.error().message();
            ASSERT_TRUE(read) << read.error().message();
          }
          switch (random() % 3) {
            case 0:
              (void)rig.remove(rig.root, name);
              break;
            case 1:
              (void)rig.rename(rig.root, name, rig.root, fmt::format("f{}", random() % 6));
          }
          auto closed = rig.close(made->handle, made->right);
          ASSERT_TRUE(closed) << closed.error().message();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    rig.stop();
    EXPECT_FALSE(std::filesystem::exists(rig.path(kOwnFolder))) << "unlinked files were left";
  }
}

}  // namespace
}  // namespace forebay
