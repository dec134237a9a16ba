// Direct I/O: what is unaligned, what shares a block, what the kernel or the file system refuses.
#include "store/posix_direct.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include <condition_variable>
#include <thread>

#include "store/posix_testing.h"

namespace forebay {
namespace {

enum class Engine { ring, threads };

class PosixDirect : public testing::TestWithParam<Engine> {
 protected:
  static PosixOptions options() {
    PosixOptions o;
    o.direct = true;
    o.force_no_ring = GetParam() == Engine::threads;
    return o;
  }
  void SetUp() override {
    rig_.through_submit = true;
    file_ = *rig_.create("data");
    // The first use opens the file by O_DIRECT; from then on the ring can be used.
    ASSERT_TRUE(rig_.write(file_.handle, file_.right, 0, "x"));
    ASSERT_TRUE(rig_.read(file_.handle, file_.right, 0, 1));
    ASSERT_TRUE(rig_.call({.op = Op::resize, .handle = file_.handle}));
    if (GetParam() == Engine::ring && !rig_.store->uses_ring())
      GTEST_SKIP() << "no io_uring here, or not a local file system";
  }

  uint64_t counted(const char* name) { return rig_.counters.get(name).get(); }
  uint64_t size() { return rig_.getattr(file_.handle)->attr.size; }
  Request transfer(Op op, Extents file, Memory memory) {
    Request r{.op = op, .caller = rig_.caller, .handle = file_.handle, .right = file_.right};
    r.file = std::move(file);
    r.memory = std::move(memory);
    return r;
  }

  PosixRig rig_{options()};
  Reply file_;
};

INSTANTIATE_TEST_SUITE_P(Ways, PosixDirect, testing::Values(Engine::ring, Engine::threads),
                         [](const auto& way) {
                           return way.param == Engine::ring ? "ring" : "threads";
                         });

// Page-aligned memory, to be used at any offset.
class Pages {
 public:
  explicit Pages(size_t size) : pool_(size, size), buffer_(pool_.try_take()) {}
  std::span<std::byte> from(size_t offset, size_t n) { return buffer_.bytes().subspan(offset, n); }

 private:
  BufferPool pool_;
  Buffer buffer_;
};

// Offsets and lengths that like blocks and their neighbours.
struct Shapes {
  std::mt19937_64& random;
  uint64_t place(uint64_t most) {
    const uint64_t at = random() % most;
    switch (random() % 4) {
      case 0:
        return at;
      case 1:
        return at / 512 * 512;
      case 2:
        return at / 4096 * 4096 + random() % 2;
      default:
        return at / 4096 * 4096;
    }
  }
  uint64_t length(uint64_t most) {
    const uint64_t n = place(random() % 3 ? most / 16 : most);
    return n ? n : 1;
  }
};

TEST_P(PosixDirect, RandomReadsAndWritesAgainstAnOracle) {
  std::mt19937_64 random(test_seed());
  Shapes shapes{random};
  constexpr uint64_t kSize = 2_MiB;
  std::vector<std::byte> oracle;  // as long as the file
  Pages memory(2 * kSize);
  const auto any = memory.from(0, 2 * kSize);
  for (auto& b : any) b = static_cast<std::byte>(random());
  for (int round = 0; round < 400; ++round) {
    const uint64_t at = shapes.place(kSize);
    const uint64_t n = std::min(shapes.length(kSize), kSize - at);
    const auto bytes = memory.from(random() % 2 ? shapes.place(kSize) : 0, n);
    const Extents file({Offset(at), Length(n)});
    const int what = static_cast<int>(random() % 16);
    if (what == 0) {
      oracle.resize(at);
      ASSERT_TRUE(rig_.call({.op = Op::resize, .handle = file_.handle, .length = Length(at)}));
    } else if (what < 8) {
      auto wrote = rig_.call(transfer(Op::write, file, Memory::of(bytes)));
      ASSERT_TRUE(wrote) << wrote.error().message();
      ASSERT_EQ(wrote->count, n);
      if (oracle.size() < at + n) oracle.resize(at + n);
      std::ranges::copy(bytes, oracle.begin() + static_cast<ptrdiff_t>(at));
    } else {
      auto read = rig_.call(transfer(Op::read, file, Memory::of(bytes)));
      ASSERT_TRUE(read) << read.error().message();
      const uint64_t there = oracle.size() > at ? std::min(n, oracle.size() - at) : 0;
      ASSERT_EQ(read->count, there) << "at " << at << " of " << oracle.size();
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(there),
                             oracle.begin() + static_cast<ptrdiff_t>(std::min(at, oracle.size()))));
    }
    ASSERT_EQ(size(), oracle.size());
  }
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), oracle.size());
  EXPECT_EQ(std::memcmp(content.data(), oracle.data(), oracle.size()), 0);
  EXPECT_GT(counted("posix.direct_edges"), 0u);
  EXPECT_EQ(counted("posix.requests_ring") > 0, GetParam() == Engine::ring);
}

TEST_P(PosixDirect, RandomListsAgainstAnOracle) {
  std::mt19937_64 random(test_seed());
  Shapes shapes{random};
  constexpr uint64_t kSize = 512_KiB;
  std::vector<std::byte> oracle(kSize);
  ASSERT_TRUE(rig_.call({.op = Op::resize, .handle = file_.handle, .length = Length(kSize)}));
  Pages memory(2 * kSize);
  for (auto& b : memory.from(0, 2 * kSize)) b = static_cast<std::byte>(random());
  for (int round = 0; round < 60; ++round) {
    std::vector<Extent> file;
    uint64_t total = 0;
    for (uint64_t i = 0, n = 1 + random() % 20; i < n; ++i) {
      const uint64_t at = shapes.place(kSize - 1);
      file.push_back({Offset(at), Length(std::min(shapes.length(64_KiB), kSize - at))});
      total += file.back().length.value;
      if (total > kSize) break;
    }
    const Extents places = *Extents::make(file);
    // Two pieces of memory, with a gap.
    const uint64_t first = total / 2 / 512 * 512, gap = shapes.place(8_KiB);
    std::vector<Extent> pieces{{Offset(0), Length(first)},
                               {Offset(first + gap), Length(total - first)}};
    const Extents shape = *Extents::make(pieces);
    const Memory side{memory.from(0, 1).data(), shape};
    const bool write = random() % 2;
    auto moved = rig_.call(transfer(write ? Op::write : Op::read, places, side));
    ASSERT_TRUE(moved) << moved.error().message();
    ASSERT_EQ(moved->count, total);
    walk_pairs(places, shape, [&](Extent in_file, Extent in_memory) {
      std::byte* const ours = &oracle[in_file.offset.value];
      if (write) {
        std::memcpy(ours, side.at(in_memory.offset), in_file.length.value);
      } else {
        EXPECT_EQ(std::memcmp(ours, side.at(in_memory.offset), in_file.length.value), 0);
      }
      return !HasFailure();
    });
    ASSERT_FALSE(HasFailure());
  }
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), kSize);
  EXPECT_EQ(std::memcmp(content.data(), oracle.data(), kSize), 0);
}

// Pieces of one file, cut anywhere, each written again and again by one of several threads while
// others write their neighbours, which share blocks with it; and readers that look on.
TEST_P(PosixDirect, WritersThatShareBlocksLoseNothing) {
  std::mt19937_64 random(test_seed());
  constexpr uint64_t kSize = 1_MiB, kThreads = 4, kRounds = 12;
  std::vector<Extent> pieces;
  for (uint64_t at = 0; at < kSize;) {
    uint64_t n = random() % 3 ? 1 + random() % 3000 : 1 + random() % 30'000;
    n = std::min(n, kSize - at);
    pieces.push_back({Offset(at), Length(n)});
    at += n;
  }
  const auto value = [](size_t piece, uint64_t round) {
    return static_cast<char>('!' + (piece * 31 + round) % 90);
  };
  std::vector<std::thread> threads;
  std::atomic<bool> writing{true};
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t round = 0; round < kRounds; ++round) {
        for (size_t i = t; i < pieces.size(); i += kThreads) {
          const std::string text(pieces[i].length.value, value(i, round));
          auto wrote = rig_.write(file_.handle, file_.right, pieces[i].offset.value, text);
          ASSERT_TRUE(wrote) << wrote.error().message();
        }
      }
    });
  }
  std::thread reader([&] {
    std::mt19937_64 dice(random());
    while (writing) {
      const size_t i = dice() % pieces.size();
      auto text =
          rig_.read(file_.handle, file_.right, pieces[i].offset.value, pieces[i].length.value);
      ASSERT_TRUE(text);
      for (const char c : *text) {
        bool good = c == '\0';
        for (uint64_t round = 0; round < kRounds; ++round) good = good || c == value(i, round);
        ASSERT_TRUE(good) << "piece " << i;
      }
    }
  });
  for (std::thread& t : threads) t.join();
  writing = false;
  reader.join();
  EXPECT_EQ(size(), kSize);
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), kSize);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string expected(pieces[i].length.value, value(i, kRounds - 1));
    ASSERT_EQ(content.compare(pieces[i].offset.value, expected.size(), expected), 0) << i;
  }
}

// More at once than the kernel is given, from one thread, aligned and not.
TEST_P(PosixDirect, MoreThanTheDepth) {
  rig_.stop();
  rig_.options().direct_depth = 2;
  rig_.start();
  constexpr uint64_t kCount = 200, kPiece = 8_KiB;
  Pages memory(kCount * kPiece);
  for (uint64_t i = 0; i < kCount * kPiece; ++i)
    memory.from(i, 1)[0] = static_cast<std::byte>(i / 1000);
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t left = kCount, failed = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    // Every third is not on blocks.
    const uint64_t cut = i % 3 == 0 ? 100 : 0;
    const Extents file({Offset(i * kPiece), Length(kPiece - cut)});
    const auto bytes = memory.from(i * kPiece, kPiece - cut);
    rig_.store->submit(transfer(Op::write, file, Memory::of(bytes)), [&](Result<Reply>&& reply) {
      std::lock_guard lock(mutex);
      failed += !reply;
      --left;
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  EXPECT_EQ(failed, 0u);
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), kCount * kPiece);
  for (uint64_t i = 0; i < content.size(); ++i) {
    const bool cut = i / kPiece % 3 == 0 && i % kPiece >= kPiece - 100;
    ASSERT_EQ(static_cast<std::byte>(content[i]), cut ? std::byte{0} : memory.from(i, 1)[0]) << i;
  }
}

// A completion that submits, on whichever thread it runs.
TEST_P(PosixDirect, CompletionsMaySubmit) {
  constexpr int kCount = 300;
  Pages memory(8_KiB);
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0;
  std::function<void()> next = [&] {
    rig_.store->submit(
        transfer(Op::write, Extents({Offset(0), Length(8_KiB)}), Memory::of(memory.from(0, 8_KiB))),
        [&](Result<Reply>&& reply) {
          bool more;
          {
            std::lock_guard lock(mutex);
            EXPECT_TRUE(reply);
            more = ++done < kCount;
            changed.notify_one();
          }
          if (more) next();
        });
  };
  next();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done == kCount; });
}

// Cut off in the middle of many: the destructor waits for all.
TEST_P(PosixDirect, TheDestructorWaits) {
  constexpr uint64_t kCount = 64;
  Pages memory(64_KiB);
  std::atomic<uint64_t> done{0};
  for (uint64_t i = 0; i < kCount; ++i) {
    rig_.store->submit(transfer(Op::write, Extents({Offset(i * 64_KiB), Length(64_KiB)}),
                                Memory::of(memory.from(0, 64_KiB))),
                       [&](Result<Reply>&& reply) { done += reply.has_value(); });
  }
  rig_.stop();
  EXPECT_EQ(done, kCount);
}

// Memory that the store was told of; and other memory at the same place afterwards, which the
// kernel must not take for the first.
TEST_P(PosixDirect, PreparedMemory) {
  constexpr uint64_t kPiece = 64_KiB, kSize = 4 * kPiece;
  const Extents file({Offset(0), Length(kPiece)});
  void* place = nullptr;
  for (int life = 0; life < 3; ++life) {
    void* const at = ::mmap(place, kSize, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | (place ? MAP_FIXED : 0), -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    place = at;
    const std::span all(static_cast<std::byte*>(at), kSize);
    const auto prepared = rig_.store->prepare(all, kPiece);
    EXPECT_EQ(prepared != nullptr, GetParam() == Engine::ring);
    for (uint64_t i = 0; i < kSize; i += kPiece / 2) {
      const auto bytes = all.subspan(i % (kSize - kPiece), kPiece);  // some cross two pieces
      std::ranges::fill(bytes, static_cast<std::byte>('a' + life + static_cast<int>(i % 7)));
      ASSERT_TRUE(rig_.call(transfer(Op::write, file, Memory::of(bytes))));
      EXPECT_EQ(content_of(rig_.path("data")),
                std::string(kPiece, static_cast<char>('a' + life + static_cast<int>(i % 7))));
      std::ranges::fill(bytes, std::byte{0});
      ASSERT_TRUE(rig_.call(transfer(Op::read, file, Memory::of(bytes))));
      EXPECT_EQ(bytes.front(), static_cast<std::byte>('a' + life + static_cast<int>(i % 7)));
    }
  }
  ::munmap(place, kSize);
}

size_t cached_pages(const std::string& path, size_t size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  FOREBAY_ASSERT(at != MAP_FAILED);
  std::vector<unsigned char> pages((size + 4095) / 4096);
  FOREBAY_ASSERT(::mincore(at, size, pages.data()) == 0);
  ::munmap(at, size);
  ::close(fd);
  return static_cast<size_t>(std::ranges::count_if(pages, [](unsigned char p) { return p & 1; }));
}

TEST_P(PosixDirect, LeavesNothingInThePageCache) {
  struct statfs fs;
  ASSERT_EQ(::statfs(rig_.path("").c_str(), &fs), 0);
  if (fs.f_type == 0x01021994) GTEST_SKIP() << "a tmpfs is a page cache";
  const std::string text(1_MiB + 300, 't');
  ASSERT_TRUE(rig_.write(file_.handle, file_.right, 100, text));
  EXPECT_EQ(*rig_.read(file_.handle, file_.right, 100, text.size() + 5), text);
  EXPECT_EQ(cached_pages(rig_.path("data"), 100 + text.size()), 0u);
}

TEST_P(PosixDirect, AskedForAtOpen) {
  rig_.stop();
  rig_.options().direct = false;
  rig_.start();
  const auto use = [&](uint32_t flags) {
    const auto before = counted("posix.direct_edges");
    auto opened =
        rig_.call({.op = Op::open, .flags = flags, .handle = file_.handle, .access = Access::both});
    EXPECT_TRUE(opened);
    EXPECT_TRUE(rig_.write(file_.handle, opened->right, 100, "text"));
    EXPECT_EQ(*rig_.read(file_.handle, opened->right, 99, 9), std::string("\0text", 5));
    EXPECT_TRUE(rig_.close(file_.handle, opened->right));
    return counted("posix.direct_edges") - before;
  };
  EXPECT_EQ(use(0), 0u);
  EXPECT_EQ(use(kFlagDirect), 1u);
  EXPECT_EQ(use(0), 0u);
}

// ---- Refusals ----

// A whole small use of a direct export; the number of requests that went through the ring.
uint64_t use_export(PosixRig& rig) {
  rig.through_submit = true;
  auto file = rig.create("data");
  EXPECT_TRUE(file) << file.error().message();
  const std::string text(64_KiB, 'd');
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(rig.write(file->handle, file->right, 0, text));
    EXPECT_EQ(*rig.read(file->handle, file->right, 0, 64_KiB + 1), text);
    EXPECT_TRUE(rig.write(file->handle, file->right, 3, "abc"));
    EXPECT_EQ(*rig.read(file->handle, file->right, 2, 5), "dabcd");
  }
  EXPECT_EQ(rig.getattr(file->handle)->attr.size, 64_KiB);
  return rig.counters.get("posix.requests_ring").get();
}

TEST(PosixDirectRefused, ByAFileSystem) {
  TempDir temp;
  if (!own_mounts() || ::mount("none", temp.path().c_str(), "ramfs", 0, nullptr))
    GTEST_SKIP() << "cannot mount here: " << errno_name(errno);
  ASSERT_EQ(::chmod(temp.path().c_str(), 0777), 0);
  {
    PosixOptions options;
    options.directory = temp.path();
    options.direct = true;
    PosixRig rig(options);
    EXPECT_EQ(use_export(rig), 0u);
    EXPECT_EQ(rig.counters.get("posix.direct_edges").get(), 0u);
  }
  EXPECT_EQ(::umount2(temp.path().c_str(), MNT_DETACH), 0);
}

// From here on this process gets EPERM for io_uring_setup, as in many containers.
bool forbid_io_uring() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog all{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

// A user whose limit for locked memory is spent: the ring works on, from memory as it is.
TEST(PosixDirectRefused, ToRegisterMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto limited = [] {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_MEMLOCK, &none) || (::geteuid() == 0 && ::setuid(65534))) _exit(3);
    {
      PosixOptions options;
      options.direct = true;
      PosixRig rig(options);
      (void)use_export(rig);
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(limited(), testing::ExitedWithCode(0), "");
}

TEST(PosixDirectRefused, ByASandbox) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto sandboxed = [] {
    if (!forbid_io_uring()) _exit(3);
    uint64_t ring;
    {
      PosixOptions options;
      options.direct = true;
      PosixRig rig(options);
      ring = rig.store->uses_ring() ? 1 : use_export(rig);
    }
    _exit(ring == 0 && !testing::Test::HasFailure() ? 0 : 1);
  };
  EXPECT_EXIT(sandboxed(), testing::ExitedWithCode(0), "no io_uring");
}

}  // namespace
}  // namespace forebay
