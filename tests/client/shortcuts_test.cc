// Clients that read and write files themselves (client/shortcuts.h, server/shortcuts.h), beside
// clients that do not: nothing is torn, nothing out of order, and nobody waits for long for one
// that was killed or stopped.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "shortcuts_rig.h"
#include "transport/shared_shortcut.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

TEST_F(ShortcutsTest, AnyRequest) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  std::string oracle;
  for (int i = 0; i < 2000; ++i) {
    const uint64_t size = 1 + random_() % (random_() % 4 ? 3000 : 200'000);
    const uint64_t at = random_() % 400'000;
    if (random_() % 2) {
      const std::string bytes = random_bytes(random_, size);
      if (oracle.size() < at + size) oracle.resize(at + size);
      oracle.replace(at, size, bytes);
      ASSERT_EQ(file.write(at, bytes).value().count, size);
    } else if (random_() % 2) {
      ASSERT_EQ(file.read(at, size), at < oracle.size() ? oracle.substr(at, size) : "");
    } else {  // pieces of both sides, backwards
      std::string bytes = random_bytes(random_, 4 * 64);
      Request r = file.transfer(
          Op::write, Extents::make({{Offset(at + 900), Length(64)}}, {{4, -300}}).value(), bytes);
      if (oracle.size() < at + 964) oracle.resize(at + 964);
      for (uint64_t k = 0; k < 4; ++k) oracle.replace(at + 900 - 300 * k, 64, bytes, 64 * k, 64);
      ASSERT_TRUE(store->call(std::move(r)));
    }
  }
  EXPECT_GT(file.itself(), 0u);
  EXPECT_EQ(content(path("f")), oracle);
  ASSERT_TRUE(store->call(file.request(Op::close)));
}

TEST_F(ShortcutsTest, OneThatIsReadAndThenWritten) {
  const auto store = server_.connect().value();
  std::ofstream(path("f")) << std::string(100'000, 'a');
  Opened file(*store, "f");
  for (int i = 0; i < 20; ++i) ASSERT_EQ(file.read(0, 70'000), std::string(70'000, 'a'));
  EXPECT_GT(file.itself(), 0u);
  ASSERT_TRUE(file.write(3, "bcd"));
  file.take();
  EXPECT_EQ(file.read(0, 8), "aaabcdaa");
}

TEST_F(ShortcutsTest, NotWhatTheCallerMayNot) {
  const auto store = server_.connect().value();
  Opened file(*store, "f", Access::write);
  file.take("abc");
  std::string bytes(100'000, '?');
  const auto read = store->call(file.transfer(Op::read, 0, bytes));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), EBADF);
  std::ofstream(path("g")) << std::string(100'000, 'g');
  Opened reader(*store, "g", Access::read);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(reader.read(0, 100'000).size(), 100'000u);
  const auto wrote = reader.write(0, std::string(100'000, 'x'));
  ASSERT_FALSE(wrote);
  EXPECT_EQ(wrote.error().code(), EBADF);
  EXPECT_EQ(content(path("g")), std::string(100'000, 'g'));
}

// Records of one value each: whoever reads one sees one value.
TEST_F(ShortcutsTest, NobodyIsTorn) {
  constexpr uint64_t kRecord = 96_KiB, kRecords = 4;
  constexpr int kClients = 3, kThreads = 2;
  std::vector<std::unique_ptr<RemoteStore>> stores;
  for (int c = 0; c < kClients; ++c) stores.push_back(server_.connect().value());
  std::vector<std::unique_ptr<Opened>> files;
  for (const auto& store : stores) files.push_back(std::make_unique<Opened>(*store, "f"));
  for (uint64_t r = 0; r < kRecords; ++r) {
    ASSERT_TRUE(files[0]->write(r * kRecord, std::string(kRecord, '0')));
  }
  std::atomic<int> turn{0};  // clients up to this one are at work
  std::atomic<bool> over{false};
  std::atomic<uint64_t> torn{0}, reads{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kClients * kThreads; ++t) {
    threads.emplace_back([&, t, seed = random_()] {
      std::mt19937_64 random(seed);
      Opened& file = *files[static_cast<size_t>(t % kClients)];
      while (!over) {
        if (t % kClients > turn.load()) {
          std::this_thread::yield();
          continue;
        }
        const uint64_t at = random() % kRecords * kRecord;
        if (random() % 3 == 0) {
          EXPECT_TRUE(file.write(at, std::string(kRecord, static_cast<char>('a' + random() % 26))));
        } else {
          const std::string seen = file.read(at, kRecord);
          torn += seen != std::string(kRecord, seen[0]);
          ++reads;
        }
      }
    });
  }
  // The file is one client's for a while, and then everybody's for a moment.
  for (int round = 0; round < 6; ++round) {
    turn = 0;
    std::this_thread::sleep_for(400ms);
    turn = 1 + round % 2;
    std::this_thread::sleep_for(20ms);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0u) << "of " << reads;
  EXPECT_GT(files[0]->itself(), 0u);
  fmt::print("{} reads; {} requests by shortcuts\n", reads.load(), files[0]->itself());
}

// What is submitted comes before what is called after it, and after what was called before.
TEST_F(ShortcutsTest, InTheOrderOfItsClient) {
  constexpr uint64_t kFile = 256_KiB;
  const auto store = server_.connect().value();
  Opened file(*store, "f"), again(*store, "f");  // two rights of one file
  std::string oracle(kFile, '\0');
  ASSERT_TRUE(file.write(0, oracle));
  std::atomic<int> left{0}, failed{0};
  for (int round = 0; round < 12; ++round) {
    file.take();
    oracle.replace(0, 128_KiB, file.read(0, 128_KiB));
    for (int i = 0; i < 60; ++i) {
      const uint64_t size = 1 + random_() % 40'000, at = random_() % (kFile - size);
      auto bytes = std::make_shared<std::string>(random_bytes(random_, size));
      oracle.replace(at, size, *bytes);
      if (i > 20 && random_() % 4 == 0) {
        ++left;
        const Opened& by = random_() % 2 ? file : again;
        store->submit(by.transfer(Op::write, at, *bytes), [&, bytes](Result<Reply>&& done) {
          failed += !done;
          --left;
          left.notify_one();
        });
      } else {
        ASSERT_TRUE(store->call(file.transfer(Op::write, at, *bytes)));
      }
    }
    ASSERT_EQ(file.read(0, kFile), oracle) << "round " << round;
    for (int now = left; now != 0; now = left) left.wait(now);
    ASSERT_EQ(failed, 0);
  }
}

TEST_F(ShortcutsTest, AfterWhatPresentsNoRight) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  for (int round = 0; round < 10; ++round) {
    file.take("abc");
    std::atomic<bool> done{false};
    Request cut = file.request(Op::resize);
    cut.right = {};
    store->submit(std::move(cut), [&](Result<Reply>&& result) {
      EXPECT_TRUE(result);
      done = true;
      done.notify_one();
    });
    ASSERT_TRUE(file.write(0, std::string(100'000, 'n')));
    done.wait(false);
    ASSERT_EQ(content(path("f")), std::string(100'000, 'n')) << "round " << round;
  }
}

// Of two names of a file, where the server has no kernel handles, a client has two handles.
TEST_F(ShortcutsTest, TwoNamesOfAFile) {
  const auto make = [](const std::string& directory, CounterSet& counters) {
    PosixOptions options;
    options.directory = directory + "/export";
    ::mkdir(options.directory.c_str(), 0755);
    options.key_file = directory + "/key";
    options.export_id = 7;
    options.force_path_handles = true;
    return std::unique_ptr<Store>(PosixStore::open(options, counters).value());
  };
  ServerProcess server(impatient(), {}, make);
  const std::string folder = server.directory() + "/export/";
  const auto store = server.connect().value();
  for (int round = 0; round < 60; ++round) {
    const std::string f = fmt::format("f{}", round), g = fmt::format("g{}", round);
    Opened one(*store, f);
    ASSERT_EQ(::link((folder + f).c_str(), (folder + g).c_str()), 0);
    Opened two(*store, g);
    two.take(std::string(4096, '0'));
    std::string older(1_MiB, 'a'), newer(4096, 'b');
    std::atomic<int> left{2};
    const auto done = [&](Result<Reply>&& r) {
      EXPECT_TRUE(r);
      left -= 1;
      left.notify_one();
    };
    store->submit(one.transfer(Op::write, 0, older), done);
    store->submit(two.transfer(Op::write, 0, newer), done);
    for (int now = left; now != 0; now = left) left.wait(now);
    ASSERT_EQ(content(folder + f).substr(0, 4096), newer);
  }
}

// However it is closed.
TEST_F(ShortcutsTest, NoDescriptorStaysOpen) {
  const auto store = server_.connect().value();
  Opened other(*store, "other");
  for (int i = 0; i < 30; ++i) {
    Opened file(*store, fmt::format("f{}", i));
    file.take("abc");
    std::string bytes(1_MiB, 'o');
    std::atomic<int> left{1};
    const auto done = [&](Result<Reply>&& r) {
      EXPECT_TRUE(r);
      left -= 1;
      left.notify_one();
    };
    store->submit(other.transfer(Op::write, 0, bytes), done);
    if (i % 2) {
      ++left;
      store->submit(file.request(Op::close), done);
    } else {
      ASSERT_TRUE(store->call(file.request(Op::close)));
    }
    for (int now = left; now != 0; now = left) left.wait(now);
  }
  const std::string of_files = path("f");
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string to = std::filesystem::read_symlink(fd.path(), gone);
    EXPECT_FALSE(to.starts_with(of_files)) << to;
  }
}

TEST_F(ShortcutsTest, AppendsComeAfterIt) {
  const auto store = server_.connect().value(), other = server_.connect().value();
  Opened file(*store, "f"), theirs(*other, "f");
  file.take();
  ASSERT_TRUE(file.write(200'000, "end"));
  std::string more = "more";
  Request append = theirs.transfer(Op::write, 0, more);
  append.flags = kFlagAppend;
  EXPECT_EQ(other->call(std::move(append)).value().value, 200'003u);
  ASSERT_TRUE(file.write(300'000, "!"));
  Request again = file.transfer(Op::write, 0, more);
  again.flags = kFlagAppend;
  EXPECT_EQ(store->call(std::move(again)).value().value, 300'001u);
  EXPECT_EQ(content(path("f")).substr(200'000, 7), "endmore");
}

TEST_F(ShortcutsTest, LeasesEndIt) {
  const auto store = server_.connect().value(), other = server_.connect().value();
  Opened file(*store, "f"), theirs(*other, "f");
  struct Holder final : LeaseHolder {
    std::atomic<uint64_t> recalls{0};
    Store* store = nullptr;
    void recalled(uint64_t lease) override {
      ++recalls;
      store->give_back(lease);
    }
    void lost() override {}
  } holder;
  holder.store = other.get();
  other->hold_leases(&holder);
  file.take();
  Request ask = theirs.request(Op::lease);
  ask.flags = kFlagShared;
  ASSERT_TRUE(other->call(std::move(ask)));
  const uint64_t before = file.itself();
  ASSERT_TRUE(file.write(0, std::string(100'000, 'n')));
  EXPECT_EQ(file.itself(), before);
  EXPECT_EQ(holder.recalls, 1u);  // before the write was answered
  other->hold_leases(nullptr);
}

TEST_F(ShortcutsTest, ManyFiles) {
  const auto store = server_.connect().value();
  std::vector<std::unique_ptr<Opened>> files;
  for (size_t i = 0; i < 3 * kShortcuts; ++i) {
    files.push_back(std::make_unique<Opened>(*store, fmt::format("f{}", i)));
  }
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string bytes(70'000, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(files[i]->write(static_cast<uint64_t>(round) * 70'000, bytes));
    }
  }
  EXPECT_GT(files[0]->itself(), kShortcuts);
  for (size_t i = 0; i < files.size(); ++i) {
    ASSERT_EQ(content(path(fmt::format("f{}", i))),
              std::string(280'000, static_cast<char>('a' + i % 26)));
  }
}

TEST_F(ShortcutsTest, TheServerCrashes) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  for (int life = 0; life < 5; ++life) {
    file.take();
    server_.restart();
    const std::string bytes = random_bytes(random_, 300'000);
    ASSERT_TRUE(file.write(0, bytes));
    ASSERT_EQ(file.read(0, 300'000), bytes);
  }
}

TEST_F(ShortcutsTest, AForkedChildHasItsOwn) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  file.take();
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = true;
    for (int i = 0; i < 20; ++i) good = good && file.write(0, std::string(100'000, 'c'));
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(file.read(0, 100'000), std::string(100'000, 'c'));
  ASSERT_TRUE(file.write(5, "parent"));
  EXPECT_EQ(content(path("f")).substr(0, 12), "cccccparentc");
}

// Somebody else's file is wanted back from a process that never lets go of it.
class ShortcutsHeld : public ShortcutsTest {
 protected:
  pid_t begin_writer() {
    int ready[2];
    FOREBAY_ASSERT(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto store = server_.connect().value();
      Opened file(*store, "f");
      file.take();
      FOREBAY_ASSERT(::write(ready[1], "!", 1) == 1);
      const std::string bytes(32_MiB, 'w');
      for (;;) (void)file.write(0, bytes);
    }
    char byte;
    FOREBAY_ASSERT(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
};

TEST_F(ShortcutsHeld, ByAKilledProcess) {
  for (int i = 0; i < 10; ++i) {
    const pid_t child = begin_writer();
    ::usleep(static_cast<useconds_t>(random_() % 20'000));
    ::kill(child, SIGKILL);  // not waited for yet: it stays as a zombie
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    const std::string mine = random_bytes(random_, 50'000);
    ASSERT_TRUE(file.write(10, mine));
    EXPECT_EQ(file.read(10, mine.size()), mine);
    end(child);
  }
}

TEST_F(ShortcutsHeld, ByAStoppedProcess) {
  const pid_t child = begin_writer();
  for (int i = 0; i < 5; ++i) {
    ::usleep(static_cast<useconds_t>(random_() % 20'000));
    ::kill(child, SIGSTOP);
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(file.write(10, "mine"));
    EXPECT_EQ(file.read(10, 4), "mine");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
    ::kill(child, SIGCONT);
  }
  end(child);
}

class ShortcutsOff : public ShortcutsTest {
 protected:
  static ExportOptions without() {
    ExportOptions options;
    options.shortcuts = false;
    return options;
  }
  ShortcutsOff() : ShortcutsTest(without()) {}
};

TEST_F(ShortcutsOff, ByTheExport) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(file.write(0, std::string(100'000, 'a')));
  EXPECT_EQ(file.itself(), 0u);
}

}  // namespace
}  // namespace forebay
