// Processes that write small pieces of one file among each other's, and gather them in memory that
// they share (client/gather_room.h): beside readers, killed ones, a server that crashes, and
// programs that close descriptors which they do not know.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "shortcuts_rig.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kProcesses = 5;

// What the processes of a test share.
struct Board {
  std::atomic<uint32_t> done[kProcesses];  // records of each that are acknowledged
  std::atomic<uint64_t> gathered;
  std::atomic<bool> go;
};

class Gathering : public ShortcutsTest {
 protected:
  Gathering()
      : board_(*static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Gathering() override { ::munmap(&board_, sizeof(Board)); }

  // While the test has one thread.
  void start(const std::function<int(uint32_t)>& work) {
    for (uint32_t p = 0; p < kProcesses; ++p) {
      const pid_t pid = ::fork();
      if (pid == 0) ::_exit(work(p));
      processes_.push_back(pid);
    }
  }
  static int status_of(pid_t pid) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    return status;
  }
  void all_end_well() {
    for (const pid_t pid : std::exchange(processes_, {})) EXPECT_EQ(status_of(pid), 0);
  }

  static uint64_t place(uint32_t p, uint64_t k, uint64_t size) {
    return (k * kProcesses + p) * size;
  }
  static std::string record(uint32_t p, uint64_t k, uint64_t size, uint64_t version = 0) {
    std::string bytes(size, static_cast<char>('a' + (p + k + version) % 26));
    const std::string head = fmt::format("{:x}/{:x}/{:x};", p, k, version);
    return bytes.replace(0, head.size(), head);
  }
  void expect_records(uint32_t p, uint64_t records, uint64_t size, const std::string& all) {
    for (uint64_t k = 0; k < records; ++k)
      ASSERT_EQ(all.compare(place(p, k, size), size, record(p, k, size)), 0)
          << "process " << p << " record " << k << " of " << size;
  }
  void say_gathered(const RemoteStore& store) { board_.gathered += store.stats().gathered; }

  Board& board_;
  std::vector<pid_t> processes_;
};

// Requests of one client, several at a time.
class AtATime {
 public:
  explicit AtATime(Opened& file) : file_(file) {}
  void write(uint64_t at, std::string bytes) {
    ++left_;
    auto kept = std::make_shared<std::string>(std::move(bytes));
    file_.store().submit(file_.transfer(Op::write, at, *kept), [this, kept](Result<Reply>&& r) {
      failed_ += !r || r->count != kept->size();
      left_ -= 1;
      left_.notify_one();
    });
  }
  void await() {
    for (size_t now = left_; now != 0; now = left_) left_.wait(now);
  }
  bool failed() const { return failed_ != 0; }

 private:
  Opened& file_;
  std::atomic<size_t> left_{0}, failed_{0};
};

// One and several at a time, now and then over what is under way, of all sizes.
TEST_F(Gathering, EveryRecordIsThere) {
  constexpr uint64_t kRecords = 6000;
  for (const uint64_t size : {100, 1000, 4096}) {
    const std::string name = fmt::format("f{}", size);
    board_.gathered = 0;
    start([&](uint32_t p) {
      std::mt19937_64 random(random_() + p);
      const auto store = server_.connect().value();
      Opened file(*store, name);
      AtATime writes(file);
      for (uint64_t k = 0; k < kRecords;) {
        if (random() % 4 == 0) {
          if (!file.write(place(p, k, size), record(p, k, size))) return 1;
          ++k;
          continue;
        }
        for (auto n = 1 + random() % 8; n > 0 && k < kRecords; --n, ++k) {
          if (random() % 64 == 0) writes.write(place(p, k, size), std::string(size, '!'));
          writes.write(place(p, k, size), record(p, k, size));
        }
        writes.await();
      }
      say_gathered(*store);
      return writes.failed() ? 2 : 0;
    });
    all_end_well();
    const std::string all = content(path(name));
    EXPECT_EQ(all.size(), kProcesses * kRecords * size);
    for (uint32_t p = 0; p < kProcesses; ++p) expect_records(p, kRecords, size, all);
    EXPECT_GT(board_.gathered, 0u);
    fmt::print("{} of {} records of {} bytes gathered\n", board_.gathered.load(),
               kProcesses * kRecords, size);
  }
}

// Each file's have memory of their own, whichever way the server is asked for it.
TEST_F(Gathering, FilesAreNotMixedUp) {
  constexpr uint64_t kSize = 800, kRecords = 6000, kFiles = 3;
  start([&](uint32_t p) {
    std::mt19937_64 random(random_() + p);
    const auto store = server_.connect().value();
    std::vector<std::unique_ptr<Opened>> files;
    for (uint64_t f = 0; f < kFiles; ++f)
      files.push_back(std::make_unique<Opened>(*store, fmt::format("f{}", f)));
    std::vector<std::unique_ptr<AtATime>> writes;
    for (auto& file : files) writes.push_back(std::make_unique<AtATime>(*file));
    for (uint64_t k = 0; k < kRecords; ++k) {
      const bool waits = random() % 4 == 0;
      for (uint64_t f = 0; f < kFiles; ++f) {
        const std::string bytes = record(p, k, kSize, f + 1);
        if (!waits) {
          writes[f]->write(place(p, k, kSize), bytes);
        } else if (!files[f]->write(place(p, k, kSize), bytes)) {
          return 1;
        }
      }
      // One that threads of the client would do, which ask by themselves.
      const uint64_t far = place(0, kRecords, kSize) + p * 512_KiB;
      if (p == 0 && k % 3000 == 100)
        writes[random() % kFiles]->write(far, std::string(512_KiB, 'z'));
      for (auto& one : writes) one->await();
    }
    say_gathered(*store);
    return 0;
  });
  all_end_well();
  for (uint64_t f = 0; f < kFiles; ++f) {
    const std::string all = content(path(fmt::format("f{}", f)));
    for (uint32_t p = 0; p < kProcesses; ++p)
      for (uint64_t k = 0; k < kRecords; ++k)
        ASSERT_EQ(all.compare(place(p, k, kSize), kSize, record(p, k, kSize, f + 1)), 0)
            << "file " << f << " process " << p << " record " << k;
  }
  EXPECT_GT(board_.gathered, 0u);
  fmt::print("{} of {} gathered\n", board_.gathered.load(), kProcesses * kRecords * kFiles);
}

// What is acknowledged to one is seen by another, who takes the file back from them all for that.
TEST_F(Gathering, AReaderSeesWhatIsAcknowledged) {
  constexpr uint64_t kSize = 1000, kRecords = 15'000;
  start([&](uint32_t p) {
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    for (uint64_t k = 0; k < kRecords; ++k) {
      if (!file.write(place(p, k, kSize), record(p, k, kSize))) return 1;
      board_.done[p] = static_cast<uint32_t>(k + 1);
    }
    say_gathered(*store);
    return 0;
  });
  {
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    for (int round = 0; round < 40; ++round) {
      const auto p = static_cast<uint32_t>(random_() % kProcesses);
      if (const uint64_t done = board_.done[p]; done > 0) {
        const uint64_t k = random_() % 4 ? done - 1 : random_() % done;
        EXPECT_EQ(file.read(place(p, k, kSize), kSize), record(p, k, kSize)) << p << " " << k;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 30));
    }
  }
  all_end_well();
  const std::string all = content(path("f"));
  for (uint32_t p = 0; p < kProcesses; ++p) expect_records(p, kRecords, kSize, all);
  fmt::print("{} gathered\n", board_.gathered.load());
}

// Once a process has ended, nothing that it had begun to write comes over what is written then.
TEST_F(Gathering, KilledOnesAreDone) {
  constexpr uint64_t kSize = 512, kMost = 200'000;
  for (int round = 0; round < 8; ++round) {
    for (auto& done : board_.done) done = 0;
    board_.go = true;
    const std::string name = fmt::format("f{}", round);
    start([&](uint32_t p) {
      const auto store = server_.connect().value();
      Opened file(*store, name);
      for (uint64_t k = 0; board_.go && k < kMost; ++k) {
        if (!file.write(place(p, k, kSize), record(p, k, kSize))) return 1;
        board_.done[p] = static_cast<uint32_t>(k + 1);
      }
      say_gathered(*store);
      return 0;
    });
    const auto least = 1500 + random_() % 3000;
    while (board_.done[0] < least) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 2000));
    ::kill(processes_[0], SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(processes_[0])));
    processes_.erase(processes_.begin());
    const uint64_t done = board_.done[0];
    {
      const auto store = server_.connect().value();
      Opened file(*store, name);
      ASSERT_TRUE(file.write(place(0, done, kSize), record(0, done, kSize, 7)));
      std::this_thread::sleep_for(30ms);
    }
    board_.go = false;
    all_end_well();
    const std::string all = content(path(name));
    EXPECT_EQ(all.substr(place(0, done, kSize), kSize), record(0, done, kSize, 7)) << round;
    for (uint32_t p = 0; p < kProcesses; ++p)
      expect_records(p, board_.done[p] - (p == 0), kSize, all);
  }
  fmt::print("{} gathered\n", board_.gathered.load());
}

// A server's crash takes nothing with it that was acknowledged, and they go on.
TEST_F(Gathering, TheServerCrashes) {
  constexpr uint64_t kSize = 2000, kRecords = 20'000;
  start([&](uint32_t p) {
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    AtATime writes(file);
    for (uint64_t k = 0; k < kRecords;) {
      for (int n = 0; n < 4 && k < kRecords; ++n, ++k)
        writes.write(place(p, k, kSize), record(p, k, kSize));
      writes.await();
      board_.done[p] = static_cast<uint32_t>(k);
    }
    say_gathered(*store);
    return writes.failed();
  });
  for (int i = 0; i < 4; ++i) {
    const uint32_t done = board_.done[0];
    while (board_.done[0] < std::min<uint64_t>(done + 2000, kRecords))
      std::this_thread::sleep_for(1ms);
    server_.restart();
  }
  all_end_well();
  const std::string all = content(path("f"));
  for (uint32_t p = 0; p < kProcesses; ++p) expect_records(p, kRecords, kSize, all);
  fmt::print("{} gathered\n", board_.gathered.load());
}

// The program has other files by the numbers of ours then: nothing comes into these, and nothing is
// lost, its own writes and those that it had written for others.
TEST_F(Gathering, BesideOneWhoClosesDescriptors) {
  constexpr uint64_t kSize = 1000, kRecords = 6000;
  start([&](uint32_t p) {
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    const std::string other = path(fmt::format("other{}", p));
    for (uint64_t k = 0; k < kRecords; ++k) {
      if (!file.write(place(p, k, kSize), record(p, k, kSize))) return 1;
      if (p != 0 || k % 1000 != 500) continue;
      const int own = ::open(other.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      for (int fd = 3; fd < 100; ++fd) {
        char link[4096];
        const ssize_t n =
            ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), link, sizeof link);
        if (n > 0 && std::string(link, static_cast<size_t>(n)) == path("f")) ::dup2(own, fd);
      }
    }
    say_gathered(*store);
    return content(other).empty() ? 0 : 2;
  });
  all_end_well();
  const std::string all = content(path("f"));
  for (uint32_t p = 0; p < kProcesses; ++p) expect_records(p, kRecords, kSize, all);
  fmt::print("{} gathered\n", board_.gathered.load());
}

// Nobody has to call anything for what was submitted, also while another thread of the program
// waits for an answer that does not come.
TEST_F(Gathering, BesideAThreadThatWaits) {
  constexpr uint64_t kSize = 4096;
  board_.go = true;
  start([&](uint32_t p) {
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    for (uint64_t k = 0; board_.go; ++k)
      if (!file.write(place(p, k % 1000, kSize), record(p, k, kSize))) return 1;
    return 0;
  });
  {
    const auto store = server_.connect().value(), other = server_.connect().value();
    Opened file(*store, "f"), waits(*store, "locked"), holds(*other, "locked");
    const auto change_lock = [](Opened& of, Op op) {
      Request r = of.request(op);
      r.length = Length(1);
      if (op == Op::lock) r.flags = kFlagWait;
      if (op == Op::unlock) r.right = {};
      return of.store().call(std::move(r)).has_value();
    };
    AtATime writes(file);
    const auto end = std::chrono::steady_clock::now() + 30s;
    for (uint64_t k = 0; store->stats().gathered < 100; ++k) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing is gathered";
      writes.write(place(kProcesses, k % 1000, kSize) + 4_MiB, record(0, k, kSize));
      writes.await();
    }
    ASSERT_TRUE(change_lock(holds, Op::lock));
    std::thread waiter([&] { EXPECT_TRUE(change_lock(waits, Op::lock)); });
    std::this_thread::sleep_for(20ms);
    for (uint64_t k = 0; k < 200; ++k) {
      writes.write(place(kProcesses, k * 7 % 1000, kSize) + 4_MiB, record(0, k, kSize));
      writes.await();
    }
    EXPECT_TRUE(change_lock(holds, Op::unlock));
    waiter.join();
    EXPECT_FALSE(writes.failed());
  }
  board_.go = false;
  all_end_well();
}

}  // namespace
}  // namespace forebay
