// Lists through a shared mapping: bytes, counts and sizes against an oracle, processes that write
// one file together, faults, and whose signal handler gets what.
#include "store/posix_mapped.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "store/posix_sigbus.h"
#include "store/posix_testing.h"

namespace forebay {
namespace {

PosixOptions mapped_options() {
  PosixOptions options;
  options.in_application = options.mapped = true;
  return options;
}

class PosixMapped : public testing::Test {
 protected:
  void SetUp() override { file_ = *rig_.create("data"); }

  Result<Reply> transfer(Op op, const Extents& file, std::span<std::byte> bytes,
                         const Extents& shape) {
    return rig_.call({.op = op,
                      .handle = file_.handle,
                      .right = file_.right,
                      .file = file,
                      .memory = Memory{bytes.data(), shape}});
  }
  Result<Reply> transfer(Op op, const Extents& file, std::span<std::byte> bytes) {
    return transfer(op, file, bytes, Extents({Offset(0), file.total()}));
  }
  uint64_t steps() { return rig_.counters.get("posix.mapped_steps").get(); }
  uint64_t calls() { return rig_.counters.get("posix.io_calls").get(); }

  PosixRig rig_{mapped_options()};
  Reply file_;
};

Extents strided(uint64_t at, uint64_t piece, uint64_t count, int64_t stride) {
  return *Extents::make({{Offset(at), Length(piece)}}, {{count, stride}});
}

std::vector<std::byte> random_bytes(std::mt19937_64& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Small pieces that do not overlap, from `at` on, mostly rising and sometimes in any order.
std::vector<Extent> random_pieces(std::mt19937_64& random, uint64_t at, size_t count) {
  const uint64_t longest = 1 + random() % 300, widest = random() % 200;
  std::vector<Extent> pieces;
  for (size_t i = 0; i < count; ++i) {
    at += widest ? random() % widest : 0;
    pieces.push_back({Offset(at), Length(1 + random() % longest)});
    at += pieces.back().length.value;
  }
  if (random() % 4 == 0) std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

// What a read of the list gives: up to the first byte at the end of file or beyond.
std::vector<std::byte> oracle_read(const std::vector<std::byte>& oracle, const Extents& file) {
  std::vector<std::byte> out;
  for (ExtentCursor cursor(file); !cursor.done();) {
    const Extent piece = cursor.take(file.total());
    const uint64_t end = std::min<uint64_t>(piece.end().value, oracle.size());
    for (uint64_t i = piece.offset.value; i < end; ++i) out.push_back(oracle[i]);
    if (end < piece.end().value) break;
  }
  return out;
}

TEST_F(PosixMapped, RandomListsAgainstAnOracle) {
  std::mt19937_64 random(test_seed());
  std::vector<std::byte> oracle;
  const std::vector<std::byte> source = random_bytes(random, 4'000'000);
  std::vector<std::byte> memory = source;
  for (int round = 0; round < 200; ++round) {
    const Extents file =
        *Extents::make(random_pieces(random, random() % 300'000, 1 + random() % 3000));
    const uint64_t total = file.total().value;
    Extents shape({Offset(random() % 1000), Length(total)});
    if (random() % 2) shape = strided(random() % 100, 1, total, 1 + random() % 3);
    if (random() % 3) {
      memory = source;
      auto wrote = transfer(Op::write, file, memory, shape);
      ASSERT_TRUE(wrote) << wrote.error().message();
      ASSERT_EQ(wrote->count, total);
      oracle.resize(std::max<uint64_t>(oracle.size(), file.bounds().end().value));
      walk_pairs(file, shape, [&](Extent to, Extent from) {
        std::memcpy(&oracle[to.offset.value], &memory[from.offset.value], to.length.value);
        return true;
      });
      ASSERT_EQ(rig_.getattr(file_.handle)->attr.size, oracle.size());
    } else {
      const std::vector<std::byte> expected = oracle_read(oracle, file);
      auto read = transfer(Op::read, file, memory, shape);
      ASSERT_TRUE(read) << read.error().message();
      ASSERT_EQ(read->count, expected.size());
      std::vector<std::byte> got(total);
      copy_out(Memory{memory.data(), shape}, got);
      got.resize(expected.size());
      ASSERT_TRUE(got == expected) << round;
    }
    if (random() % 8 == 0) {
      oracle.resize(random() % 400'000);
      ASSERT_TRUE(
          rig_.call({.op = Op::resize, .handle = file_.handle, .length = Length(oracle.size())}));
    }
  }
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), oracle.size());
  EXPECT_EQ(std::memcmp(content.data(), oracle.data(), oracle.size()), 0);
  EXPECT_GT(steps(), 20u);
  EXPECT_EQ(rig_.counters.get("posix.mapped_faults").get(), 0u);
}

// More than one window and more than one step of pieces, forwards and backwards.
TEST_F(PosixMapped, LongListsGoInWindows) {
  std::mt19937_64 random(test_seed());
  constexpr uint64_t kPiece = 600, kCount = 40'000, kStride = 4000;
  std::vector<std::byte> bytes = random_bytes(random, kPiece * kCount), back(bytes.size());
  const Extents forwards = strided(7, kPiece, kCount, kStride);
  ASSERT_EQ(transfer(Op::write, forwards, bytes)->count, bytes.size());
  EXPECT_EQ(calls(), 0u);
  EXPECT_EQ(rig_.getattr(file_.handle)->attr.size, forwards.bounds().end().value);
  ASSERT_EQ(transfer(Op::read, forwards, back)->count, bytes.size());
  EXPECT_TRUE(back == bytes);
  const Extents backwards = strided(7 + (kCount - 1) * kStride, kPiece, kCount, -int64_t{kStride});
  ASSERT_EQ(transfer(Op::read, backwards, back)->count, bytes.size());
  EXPECT_EQ(std::memcmp(&back[(kCount - 1) * kPiece], bytes.data(), kPiece), 0);
  ASSERT_EQ(transfer(Op::write, backwards, back)->count, bytes.size());
  ASSERT_EQ(transfer(Op::read, forwards, back)->count, bytes.size());
  EXPECT_TRUE(back == bytes);
}

TEST_F(PosixMapped, WhatDoesNotPayGoesByCalls) {
  const auto pays = [](const Extents& file) { return posix::worth_mapping(file, 1024); };
  EXPECT_TRUE(pays(strided(0, 64, 1000, 512)));
  EXPECT_TRUE(pays(strided(0, 64, 1000, 4096)));
  EXPECT_FALSE(pays(strided(0, 64, 1000, 65536)));
  EXPECT_FALSE(pays(strided(0, 64, 10, 512)));
  EXPECT_FALSE(pays(strided(0, 4096, 1000, 8192)));
  EXPECT_FALSE(pays(Extents({Offset(0), Length(1_MiB)})));
  EXPECT_FALSE(pays(Extents()));
  // Dense on the whole, but so scattered in the order of the stream that no window holds much.
  std::vector<Extent> pieces;
  for (uint64_t i = 0; i < 40; ++i)
    for (const uint64_t at : {i * 512, 70_MiB + i * 512})
      pieces.push_back({Offset(at), Length(64)});
  pieces.push_back({Offset(100'000), Length(69_MiB)});
  const Extents file = *Extents::make(pieces);
  std::vector<std::byte> bytes(file.total().value, std::byte{'s'}), back(bytes.size());
  CounterSet counters;
  posix::LooksInVain looks;
  posix::HugePages huge(false);
  const posix::MappedParts parts{
      2_MiB, counters.get("calls"), counters.get("mapped"), counters.get("faults"), looks, huge};
  ASSERT_TRUE(posix::worth_mapping(file, parts.most_piece));
  const int fd = ::open(rig_.path("data").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(*posix::write_mapped(fd, file, Memory::of(std::span(bytes)), parts), bytes.size());
  EXPECT_EQ(*posix::read_mapped(fd, file, Memory::of(std::span(back)), parts), bytes.size());
  EXPECT_EQ(counters.get("mapped").get(), 0u);
  EXPECT_TRUE(back == bytes);
  ::close(fd);
}

// Larger pieces far apart: by mapping or by calls, as the page cache is; and cut by the end of
// file.
TEST_F(PosixMapped, ReadsThatLookFirst) {
  std::mt19937_64 random(test_seed());
  constexpr uint64_t kPiece = 4096, kCount = 600, kStride = 32768, kSize = kStride * kCount;
  const std::vector<std::byte> content = random_bytes(random, kSize);
  for (const uint64_t written_by : {uint64_t{4096}, uint64_t{1_MiB}}) {
    const int fd = ::open(rig_.path("data").c_str(), O_RDWR | O_TRUNC | O_CLOEXEC);
    for (uint64_t at = 0; at < kSize; at += written_by) {
      const uint64_t n = std::min(written_by, kSize - at);
      ASSERT_EQ(::pwrite(fd, &content[at], n, static_cast<off_t>(at)), static_cast<ssize_t>(n));
    }
    CounterSet counters;
    posix::LooksInVain looks;
    posix::HugePages huge(true);
    const posix::MappedParts parts{
        kPiece, counters.get("calls"), counters.get("mapped"), counters.get("faults"), looks, huge};
    for (const uint64_t first : {uint64_t{0}, uint64_t{8192}, uint64_t{3 * 4096 + 100}}) {
      const Extents file = strided(first, kPiece, kCount, kStride);
      ASSERT_TRUE(posix::worth_mapping(file, parts.most_piece));
      std::vector<std::byte> back(file.total().value);
      const auto read = posix::read_mapped(fd, file, Memory::of(std::span(back)), parts);
      ASSERT_EQ(read.value(), back.size());
      EXPECT_TRUE(back == oracle_read(content, file));
    }
    EXPECT_GT(counters.get("calls").get() + counters.get("mapped").get(), 0u);
    ASSERT_EQ(::ftruncate(fd, kSize / 2 + 100), 0);
    const Extents file = strided(0, kPiece, kCount, kStride);
    std::vector<std::byte> back(file.total().value);
    EXPECT_EQ(posix::read_mapped(fd, file, Memory::of(std::span(back)), parts).value(),
              kPiece * kCount / 2 + 100);
    ::close(fd);
  }
}

TEST(HugePages, AreDearWhereAHypervisorTakesFreeMemory) {
  const std::filesystem::path balloons =
      std::filesystem::temp_directory_path() / ("forebay-balloons-" + std::to_string(::getpid()));
  EXPECT_TRUE(posix::huge_pages_are_cheap(balloons));
  std::filesystem::create_directories(balloons / "virtio0");
  std::filesystem::create_directories(balloons / "module");
  std::ofstream(balloons / "virtio0" / "features") << "011000000000\n";
  EXPECT_TRUE(posix::huge_pages_are_cheap(balloons));
  std::ofstream(balloons / "virtio0" / "features") << "011001000000\n";
  EXPECT_FALSE(posix::huge_pages_are_cheap(balloons));
  std::filesystem::remove_all(balloons);
}

// After a dear one 128 MiB go without, then twice as many each time, until one is cheap.
TEST(HugePages, AreTriedAgainAfterAWhile) {
  constexpr uint64_t kDear = 5'000'000, kCheap = 400'000, kOld = 1'000;  // ns
  posix::HugePages huge(false);
  EXPECT_TRUE(huge.worth_trying(2_MiB));
  EXPECT_FALSE(huge.dear(kCheap));
  EXPECT_TRUE(huge.worth_trying(2_MiB));
  const auto windows_without = [&] {
    int windows = 0;
    while (!huge.worth_trying(32_MiB)) ++windows;
    return windows;
  };
  for (const int windows : {4, 8, 16}) {
    EXPECT_TRUE(huge.dear(kDear));
    EXPECT_EQ(windows_without(), windows);
  }
  EXPECT_FALSE(huge.dear(kOld));  // says nothing
  EXPECT_TRUE(huge.dear(kDear));
  EXPECT_EQ(windows_without(), 32);
  EXPECT_FALSE(huge.dear(kCheap));
  EXPECT_TRUE(huge.dear(kDear));
  EXPECT_EQ(windows_without(), 4);
}

TEST_F(PosixMapped, ProcessesThatWriteOneFileTogether) {
  constexpr uint64_t kProcesses = 4, kPiece = 100, kCount = 30'000;
  std::vector<pid_t> children;
  for (uint64_t rank = 0; rank < kProcesses; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<std::byte> bytes(kPiece * kCount / 10, static_cast<std::byte>('a' + rank));
      bool good = true;
      for (uint64_t part = 0; part < 10; ++part) {
        const uint64_t first = part * (kCount / 10) * kPiece * kProcesses + rank * kPiece;
        good = good &&
               transfer(Op::write, strided(first, kPiece, kCount / 10, kPiece * kProcesses), bytes)
                   .has_value();
      }
      ::_exit(good && steps() > 0 && calls() == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const std::string content = content_of(rig_.path("data"));
  ASSERT_EQ(content.size(), kProcesses * kPiece * kCount);
  for (size_t i = 0; i < content.size(); ++i)
    ASSERT_EQ(content[i], static_cast<char>('a' + i / kPiece % kProcesses)) << i;
}

TEST_F(PosixMapped, NeedsBothWaysOfADescriptorToWrite) {
  const Extents file = strided(0, 64, 500, 512);
  std::vector<std::byte> bytes(file.total().value, std::byte{'w'}), back(bytes.size());
  // The store opens it for both; the right is none to read all the same.
  auto right = rig_.open(file_.handle, Access::write);
  EXPECT_TRUE(rig_.close(file_.handle, file_.right));
  file_.right = right->right;
  EXPECT_EQ(transfer(Op::write, file, bytes)->count, bytes.size());
  EXPECT_EQ(steps(), 1u);
  EXPECT_EQ(code_of(transfer(Op::read, file, back)), EBADF);
  right = rig_.open(file_.handle, Access::read);
  file_.right = right->right;
  EXPECT_EQ(code_of(transfer(Op::write, file, bytes)), EBADF);
  EXPECT_EQ(transfer(Op::read, file, back)->count, bytes.size());
  EXPECT_TRUE(back == bytes);
  EXPECT_EQ(steps(), 2u);
  // A descriptor that cannot be mapped does as well.
  CounterSet counters;
  posix::LooksInVain looks;
  posix::HugePages huge(true);
  const posix::MappedParts parts{
      2048, counters.get("calls"), counters.get("mapped"), counters.get("faults"), looks, huge};
  const int fd = ::open(rig_.path("data").c_str(), O_WRONLY | O_CLOEXEC);
  std::ranges::fill(bytes, std::byte{'v'});
  EXPECT_EQ(*posix::write_mapped(fd, file, Memory::of(std::span(bytes)), parts), bytes.size());
  EXPECT_EQ(counters.get("mapped").get(), 0u);
  EXPECT_EQ(counters.get("calls").get(), 500u);
  ::close(fd);
  EXPECT_TRUE(transfer(Op::read, file, back));
  EXPECT_TRUE(back == bytes);
}

TEST_F(PosixMapped, AFileThatIsCutShortMeanwhile) {
  const Extents file = strided(0, 64, 4'000, 512);
  const auto size = static_cast<off_t>(file.bounds().end().value);
  std::vector<std::byte> bytes(file.total().value, std::byte{'t'}), back(bytes.size());
  std::atomic<bool> stop = false;
  const std::string path = rig_.path("data");
  std::thread other([&] {
    for (int i = 0; !stop; ++i)
      if (::truncate(path.c_str(), i % 3 ? size / 7 : 0)) break;
  });
  const auto faults = [&] { return rig_.counters.get("posix.mapped_faults").get(); };
  for (int round = 0; round < 2000 && (round < 20 || faults() < 5); ++round) {
    auto wrote = transfer(Op::write, file, bytes);
    ASSERT_TRUE(wrote) << wrote.error().message();
    ASSERT_EQ(wrote->count, bytes.size());
    auto read = transfer(Op::read, file, back);
    ASSERT_TRUE(read) << read.error().message();
    ASSERT_LE(read->count, bytes.size());
  }
  stop = true;
  other.join();
  EXPECT_GT(faults(), 0u);
  ASSERT_TRUE(transfer(Op::write, file, bytes));
  EXPECT_EQ(rig_.getattr(file_.handle)->attr.size, static_cast<uint64_t>(size));
  EXPECT_EQ(transfer(Op::read, file, back)->count, bytes.size());
  EXPECT_TRUE(back == bytes);
}

TEST_F(PosixMapped, WritesChangeTheModificationTime) {
  const Extents file = strided(0, 64, 500, 512);
  std::vector<std::byte> bytes(file.total().value);
  ASSERT_TRUE(transfer(Op::write, file, bytes));
  for (int again = 0; again < 2; ++again) {
    SetAttr set{.what = SetAttr::kMtime, .mtime = {1000, 0}};
    ASSERT_TRUE(rig_.call({.op = Op::setattr, .handle = file_.handle, .set = set}));
    ASSERT_TRUE(transfer(Op::write, file, bytes));
    EXPECT_GT(rig_.getattr(file_.handle)->attr.mtime.seconds, 1000);
  }
}

// ---- The signal ----

// A page that is gone.
class Hole {
 public:
  Hole() {
    fd_ = ::memfd_create("hole", MFD_CLOEXEC);
    at = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    FOREBAY_ASSERT(fd_ >= 0 && at != MAP_FAILED);
  }
  ~Hole() {
    ::munmap(at, kSize);
    ::close(fd_);
  }
  std::span<const std::byte> bytes() const { return {static_cast<std::byte*>(at), kSize}; }
  static void touch(void* page) { *static_cast<volatile char*>(page) = 1; }

  void* at;

 private:
  static constexpr size_t kSize = 4096;
  int fd_;
};

sigjmp_buf application_back;
volatile int application_faults = 0;
void application_handler(int) {
  application_faults = application_faults + 1;
  ::siglongjmp(application_back, 1);
}

struct sigaction disposition() {
  struct sigaction now;
  ::sigaction(SIGBUS, nullptr, &now);
  return now;
}

void skip_where_jumps_are_not_followed() {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a jump out of a signal handler is more than ThreadSanitizer follows";
#endif
}

TEST(BusGuard, MakesAResultOfAFault) {
  skip_where_jumps_are_not_followed();
  if (testing::Test::IsSkipped()) return;
  Hole hole;
  sigset_t bus, saved, now;
  ::sigemptyset(&bus);
  ::sigaddset(&bus, SIGBUS);
  ::pthread_sigmask(SIG_BLOCK, &bus, &saved);  // as threads of libraries often do
  const struct sigaction before = disposition();
  {
    posix::BusGuard guard;
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(guard.run(hole.bytes(), Hole::touch, hole.at));
    int good = 0;
    EXPECT_TRUE(guard.run(hole.bytes(), Hole::touch, &good));
    EXPECT_NE(good, 0);
  }
  EXPECT_EQ(disposition().sa_handler, before.sa_handler);
  ::pthread_sigmask(SIG_SETMASK, &saved, &now);
  EXPECT_EQ(::sigismember(&now, SIGBUS), 1);
}

TEST(BusGuard, LeavesTheApplicationItsOwnFaults) {
  skip_where_jumps_are_not_followed();
  if (testing::Test::IsSkipped()) return;
  Hole ours, theirs;
  struct sigaction handler = {}, before;
  handler.sa_handler = application_handler;
  ::sigaction(SIGBUS, &handler, &before);
  application_faults = 0;
  {
    posix::BusGuard guard;
    EXPECT_FALSE(guard.run(ours.bytes(), Hole::touch, ours.at));
    EXPECT_EQ(application_faults, 0);
    // On this thread, and on one that has no guard.
    if (sigsetjmp(application_back, 1) == 0) Hole::touch(theirs.at);
    EXPECT_EQ(application_faults, 1);
    std::thread([&] {
      if (sigsetjmp(application_back, 1) == 0) Hole::touch(theirs.at);
    }).join();
    EXPECT_EQ(application_faults, 2);
    EXPECT_FALSE(guard.run(ours.bytes(), Hole::touch, ours.at));
  }
  EXPECT_EQ(disposition().sa_handler, application_handler);
  ::sigaction(SIGBUS, &before, nullptr);
}

TEST(BusGuard, LeavesAHandlerThatCameLater) {
  struct sigaction handler = {}, before = disposition();
  handler.sa_handler = application_handler;
  {
    posix::BusGuard guard;
    ::sigaction(SIGBUS, &handler, nullptr);
  }
  EXPECT_EQ(disposition().sa_handler, application_handler);
  ::sigaction(SIGBUS, &before, nullptr);
}

TEST(BusGuard, WithoutAHandlerTheProcessDiesAsBefore) {
  for (const bool ignored : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGBUS, ignored ? SIG_IGN : SIG_DFL);
      Hole hole;
      posix::BusGuard guard;
      if (ignored) ::raise(SIGBUS);  // nothing happens
      Hole::touch(hole.at);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
  }
}

TEST(BusGuard, OnManyThreads) {
  const struct sigaction before = disposition();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      Hole hole;
      for (int round = 0; round < 500; ++round) {
        posix::BusGuard guard;
        ASSERT_FALSE(guard.run(hole.bytes(), Hole::touch, hole.at));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(disposition().sa_handler, before.sa_handler);
}

}  // namespace
}  // namespace forebay
