// Files around the page cache that clients read and write themselves: whole blocks from aligned
// memory by the client, large ones of submit() by threads of its own, everything else by the
// server, and all of it in order.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stop_token>
#include <thread>

#include "shortcuts_rig.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Store> make_direct(const std::string& directory, CounterSet& counters) {
  PosixOptions options;
  options.directory = directory + "/export";
  ::mkdir(options.directory.c_str(), 0755);
  options.key_file = directory + "/key";
  options.export_id = 7;
  options.direct = true;
  return PosixStore::open(options, counters).value();
}

class Pages {
 public:
  explicit Pages(uint64_t size, char fill = 0)
      : size_(size),
        at_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    FOREBAY_ASSERT(at_ != MAP_FAILED);
    std::memset(at_, fill, size);
  }
  ~Pages() { ::munmap(at_, size_); }
  Pages(const Pages&) = delete;
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(at_), size_}; }
  std::string_view text() const { return {static_cast<char*>(at_), size_}; }

 private:
  const uint64_t size_;
  void* const at_;
};
using PagesRef = std::shared_ptr<Pages>;

class DirectShortcuts : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const {
    return server_.directory() + "/export/" + name;
  }
  static Request transfer(const Opened& file, Op op, uint64_t at, std::span<std::byte> bytes) {
    Request r = file.request(op);
    r.file = Extents(Extent{Offset(at), Length(bytes.size())});
    r.memory = Memory::of(bytes);
    return r;
  }
  Result<Reply> call(const Opened& file, Op op, uint64_t at, const Pages& pages) {
    return file.store().call(transfer(file, op, at, pages.bytes()));
  }
  // Counted in left_ and failed_; keeps the memory.
  void submit(const Opened& file, Op op, uint64_t at, PagesRef pages,
              std::function<void()> then = {}) {
    ++left_;
    Request r = transfer(file, op, at, pages->bytes());
    file.store().submit(std::move(r), [this, pages, then](Result<Reply>&& done) {
      failed_ += !done || done->count != pages->bytes().size();
      if (then) then();
      --left_;
      left_.notify_one();
    });
  }
  void wait() {
    for (int now = left_; now != 0; now = left_) left_.wait(now);
  }
  // Until large requests of submit() are done by the client.
  void take(const Opened& file, const PagesRef& pages) {
    const uint64_t before = file.itself();
    for (const auto end = std::chrono::steady_clock::now() + 30s; file.itself() == before;) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no shortcut was given";
      submit(file, Op::write, 0, pages);
      wait();
    }
  }

  std::mt19937_64 random_{test_seed()};
  ServerProcess server_{impatient(), {}, make_direct};
  std::atomic<int> left_{0}, failed_{0};
};

// One that is done by a thread ends after a step that is under way, and says what is written.
TEST_F(DirectShortcuts, AreCancelled) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  const auto pages = std::make_shared<Pages>(64_MiB, 'a');
  take(file, pages);
  unsigned cancelled = 0;
  for (unsigned i = 0; i < 50 && cancelled < 3; ++i) {
    std::stop_source stop;
    Request r = transfer(file, Op::write, 0, pages->bytes());
    r.stop = stop.get_token();
    ++left_;
    store->submit(std::move(r), [&](Result<Reply>&& done) {
      if (!done) {
        EXPECT_EQ(done.error().code(), ECANCELED);
        EXPECT_LT(done.error().done(), 64_MiB);
        ++cancelled;
      }
      --left_;
      left_.notify_one();
    });
    std::this_thread::sleep_for(1ms);
    stop.request_stop();
    wait();
    submit(file, Op::write, 0, std::make_shared<Pages>(64_MiB, 'b'));
    wait();
    EXPECT_EQ(failed_, 0);
  }
  EXPECT_GE(cancelled, 3u);
}

// What is read, and other files, wait for nobody: each of these has a thread at once.
TEST_F(DirectShortcuts, OfTwoFilesAtTheSamePlaces) {
  const auto store = server_.connect().value();
  Opened one(*store, "one"), other(*store, "other");
  const auto a = std::make_shared<Pages>(16_MiB, 'a'), b = std::make_shared<Pages>(16_MiB, 'b');
  take(one, a);
  take(other, b);
  for (int i = 0; i < 20; ++i) {
    submit(one, Op::write, 0, a);
    submit(other, Op::write, 0, b);
    submit(one, Op::read, 0, std::make_shared<Pages>(16_MiB));
    submit(one, Op::read, 0, std::make_shared<Pages>(16_MiB));
  }
  wait();
  EXPECT_EQ(failed_, 0);
  const Pages got(16_MiB);
  for (const auto& [file, want] : {std::pair(&one, a), std::pair(&other, b)}) {
    ASSERT_EQ(call(*file, Op::read, 0, got).value().count, 16_MiB);
    EXPECT_TRUE(got.text() == want->text());
  }
}

TEST_F(DirectShortcuts, AnyRequest) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  std::string oracle;
  const Pages pages(512_KiB);
  for (int i = 0; i < 600; ++i) {
    const bool whole = random_() % 8 != 0;
    const uint64_t unit = whole ? 4_KiB : 1;
    const uint64_t size = (1 + random_() % (300'000 / unit)) * unit;
    const uint64_t at = random_() % (400'000 / unit) * unit;
    const auto bytes = pages.bytes().subspan(whole || random_() % 2 ? 0 : 100, size);
    if (random_() % 2) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(random_());
      if (oracle.size() < at + size) oracle.resize(at + size);
      std::memcpy(oracle.data() + at, bytes.data(), size);
      ASSERT_EQ(store->call(transfer(file, Op::write, at, bytes)).value().count, size);
    } else {
      const std::string wanted = at < oracle.size() ? oracle.substr(at, size) : "";
      ASSERT_EQ(store->call(transfer(file, Op::read, at, bytes)).value().count, wanted.size());
      ASSERT_EQ(std::memcmp(bytes.data(), wanted.data(), wanted.size()), 0);
    }
    if (i % 100 == 0) std::this_thread::sleep_for(120ms);  // it may be had again
  }
  EXPECT_GT(file.itself(), 0u);
  EXPECT_EQ(content(path("f")), oracle);
}

TEST_F(DirectShortcuts, LargeOnesByTwoThreads) {
  constexpr uint64_t kSize = 21_MiB;
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  const Pages pages(kSize), seen(kSize + 8_MiB);
  const uint64_t before = file.itself();
  for (int i = 0; i < 4; ++i) {
    for (uint64_t at = 0; at < kSize; at += 64)
      std::memset(pages.bytes().data() + at, static_cast<int>(random_()), 64);
    ASSERT_EQ(call(file, Op::write, 0, pages).value().count, kSize);
    ASSERT_EQ(call(file, Op::read, 0, seen).value().count, kSize);  // and the end of file
    ASSERT_TRUE(seen.text().substr(0, kSize) == pages.text());
  }
  EXPECT_GT(file.itself(), before);
  EXPECT_TRUE(content(path("f")) == pages.text());
}

// What an error says was written is what was written.
TEST_F(DirectShortcuts, ALargeOneThatFails) {
  constexpr uint64_t kSize = 17_MiB, kMost = 6_MiB;
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  take(file, std::make_shared<Pages>(1_MiB, 't'));
  const Pages pages(kSize, 'p');
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit less{kMost, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  const auto wrote = call(file, Op::write, 0, pages);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(wrote);
  EXPECT_EQ(wrote.error().code(), EFBIG);
  EXPECT_EQ(wrote.error().done(), kMost);
  EXPECT_TRUE(content(path("f")) == std::string(kMost, 'p'));
}

// Several under way, which overlap now and then, and some that the server has to do.
TEST_F(DirectShortcuts, InTheOrderOfItsClient) {
  constexpr uint64_t kFile = 8_MiB;
  const auto store = server_.connect().value();
  Opened file(*store, "f"), again(*store, "f");  // two rights of one file
  const auto start = std::make_shared<Pages>(kFile, 's');
  std::string oracle(start->text());
  for (int round = 0; round < 20; ++round) {
    std::memcpy(start->bytes().data(), oracle.data(), kFile);
    take(file, start);
    for (int i = 0; i < 24; ++i) {
      const bool odd = i > 12 && random_() % 8 == 0;
      const uint64_t size = odd ? 1 + random_() % 90'000 : (64 + random_() % 512) * 4_KiB;
      const uint64_t at =
          odd ? random_() % (kFile - size) : random_() % ((kFile - size) >> 12) << 12;
      const auto pages = std::make_shared<Pages>(size, static_cast<char>('a' + random_() % 26));
      oracle.replace(at, size, pages->text());
      submit(random_() % 4 ? file : again, Op::write, at, pages);
    }
    const auto seen = std::make_shared<Pages>(kFile);
    submit(file, Op::read, 0, seen);
    wait();
    ASSERT_EQ(failed_, 0);
    ASSERT_TRUE(seen->text() == oracle) << "round " << round;
    ASSERT_TRUE(content(path("f")) == oracle) << "round " << round;
  }
  EXPECT_GT(file.itself(), 40u);
}

// Those who keep some under way all the time have it as well, beside one who wants it now and then,
// and nobody sees a part of a request.
TEST_F(DirectShortcuts, NobodyIsTorn) {
  constexpr uint64_t kRecord = 1_MiB, kRecords = 4;
  const auto store = server_.connect().value(), other = server_.connect().value();
  Opened file(*store, "f"), theirs(*other, "f");
  const auto all = std::make_shared<Pages>(kRecord * kRecords, '0');
  submit(file, Op::write, 0, all);
  wait();
  std::atomic<bool> over{false};
  std::function<void()> next;
  std::mutex mutex;
  const auto write_one = [&] {
    uint64_t dice;
    {
      std::lock_guard lock(mutex);
      dice = random_();
    }
    const auto pages = std::make_shared<Pages>(kRecord, static_cast<char>('a' + dice % 26));
    submit(file, Op::write, dice / 26 % kRecords * kRecord, pages, next);
  };
  next = [&] {
    if (!over) write_one();
  };
  for (int i = 0; i < 3; ++i) write_one();
  uint64_t torn = 0;
  for (int i = 0; i < 30; ++i) {
    const Pages record(kRecord, '?');
    if (i % 3 == 0) {
      std::memset(record.bytes().data(), 'A' + i, kRecord);
      ASSERT_TRUE(call(theirs, Op::write, i % kRecords * kRecord, record));
    } else {
      ASSERT_TRUE(call(theirs, Op::read, i % kRecords * kRecord, record));
      torn += record.text() != std::string(kRecord, record.text()[0]);
    }
    if (i % 5 == 4) std::this_thread::sleep_for(400ms);
  }
  over = true;
  wait();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(failed_, 0);
  EXPECT_GT(file.itself(), 0u);
}

TEST_F(DirectShortcuts, TheServerCrashes) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  for (int life = 0; life < 4; ++life) {
    take(file, std::make_shared<Pages>(1_MiB, 't'));
    std::string oracle(4_MiB, '\0');
    for (uint64_t i = 0; i < 12; ++i) {
      const auto pages = std::make_shared<Pages>(1_MiB, static_cast<char>('a' + i));
      oracle.replace(i % 4 * 1_MiB, 1_MiB, pages->text());
      submit(file, Op::write, i % 4 * 1_MiB, pages);
      if (i == 6) server_.restart();
    }
    wait();
    ASSERT_EQ(failed_, 0);
    ASSERT_TRUE(content(path("f")) == oracle);
  }
}

// What a process had under way when it was killed lands before anybody else's, or never.
TEST_F(DirectShortcuts, ByAKilledProcess) {
  for (int i = 0; i < 10; ++i) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto store = server_.connect().value();
      Opened file(*store, "f");
      const auto pages = std::make_shared<Pages>(8_MiB, 'w');
      take(file, pages);
      FOREBAY_ASSERT(::write(ready[1], "!", 1) == 1);
      for (;; wait()) {
        for (int n = 0; n < 4; ++n) submit(file, Op::write, 0, pages);
      }
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ::usleep(static_cast<useconds_t>(random_() % 10'000));
    ::kill(child, SIGKILL);  // not waited for yet: it stays as a zombie
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    const Pages mine(4_MiB, 'm'), seen(4_MiB);
    ASSERT_TRUE(call(file, Op::write, 0, mine));
    std::this_thread::sleep_for(30ms);
    ASSERT_TRUE(call(file, Op::read, 0, seen));
    EXPECT_TRUE(seen.text() == mine.text());
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
  }
}

TEST_F(DirectShortcuts, NoDescriptorStaysOpen) {
  const auto store = server_.connect().value();
  for (int i = 0; i < 10; ++i) {
    Opened file(*store, fmt::format("f{}", i));
    take(file, std::make_shared<Pages>(1_MiB));
    submit(file, Op::write, 0, std::make_shared<Pages>(4_MiB));
    ASSERT_TRUE(store->call(file.request(Op::close)));
    wait();
  }
  EXPECT_EQ(failed_, 0);
  const std::string of_files = path("f");
  const auto open = [&] {
    int n = 0;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      n += std::filesystem::read_symlink(fd.path(), gone).string().starts_with(of_files);
    }
    return n;
  };
  // The thread that did the last one lets go of it after it has told.
  for (int i = 0; i < 1000 && open() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(open(), 0);
}

}  // namespace
}  // namespace forebay
