// Clients that write to one file at the same time, each for itself (server/shortcuts.h, "in
// common"), beside those who do not: nothing is torn, and nothing out of order.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "shortcuts_rig.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

class InCommon : public ShortcutsTest {
 protected:
  // Both write, until both do it themselves.
  void share(Opened& a, Opened& b, const std::string& bytes = std::string(4096, '0')) {
    const uint64_t of_a = a.itself(), of_b = b.itself();
    const auto both = [&] { return a.itself() > of_a + 10 && b.itself() > of_b + 10; };
    const auto end = std::chrono::steady_clock::now() + 60s;
    const auto write = [&](Opened& file) {
      while (!both() && std::chrono::steady_clock::now() < end) EXPECT_TRUE(file.write(0, bytes));
    };
    std::thread other([&] { write(b); });
    write(a);
    other.join();
    ASSERT_TRUE(both());
  }
};

// Many write to one file at the same time, themselves and through the server, pieces that overlap
// as they like: each record that is read is of one value, and so is each in the end.
TEST_F(InCommon, NobodyIsTorn) {
  constexpr uint64_t kRecord = 5000, kRecords = 16;
  constexpr size_t kClients = 4;
  const auto reader_store = server_.connect().value();
  Opened reader(*reader_store, "f");
  ASSERT_TRUE(reader.write(0, std::string(kRecord * kRecords, '0')));
  std::vector<std::unique_ptr<RemoteStore>> stores;
  std::vector<std::unique_ptr<Opened>> files;
  for (size_t c = 0; c < kClients; ++c) {
    stores.push_back(server_.connect().value());
    files.push_back(std::make_unique<Opened>(*stores.back(), "f"));
  }
  // Until two had it in common; and then so many rounds with a read in each.
  std::atomic<int> rounds{0};
  const auto shared = [&] {
    return std::ranges::count_if(files, [](const auto& f) { return f->itself() > 100; }) > 1;
  };
  std::vector<std::thread> threads;
  std::atomic<uint64_t> failed{0};
  for (size_t c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c, seed = random_()] {
      std::mt19937_64 random(seed);
      while (rounds < 40) {
        const uint64_t first = random() % kRecords;
        const uint64_t count =
            1 + random() % std::min<uint64_t>(random() % 4 ? 3 : 20, kRecords - first);
        const std::string bytes(count * kRecord, static_cast<char>('a' + random() % 26));
        failed += !files[c]->write(first * kRecord, bytes);
      }
    });
  }
  uint64_t torn = 0;
  const auto look = [&](const std::string& all) {
    for (uint64_t r = 0; r < kRecords; ++r) {
      torn += all.substr(r * kRecord, kRecord) != std::string(kRecord, all[r * kRecord]);
    }
  };
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!shared() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(shared());
  for (; rounds < 40; ++rounds) {
    look(reader.read(0, kRecord * kRecords));
    std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 20));
  }
  for (std::thread& thread : threads) thread.join();
  look(content(path("f")));
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(failed, 0u);
}

// The last of a client's own writes stays, whichever way each of them went, while others write
// next to it.
TEST_F(InCommon, EachHasItsOrder) {
  constexpr uint64_t kPart = 64_KiB;
  constexpr size_t kClients = 3;
  std::vector<std::thread> threads;
  std::array<std::string, kClients> oracles;
  std::atomic<uint64_t> failed{0};
  for (size_t c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c, seed = random_()] {
      std::mt19937_64 random(seed);
      const auto store = server_.connect().value();
      Opened file(*store, "f");
      std::string& oracle = oracles[c];
      oracle.assign(kPart, '\0');
      failed += !file.write(c * kPart, oracle);
      const auto end = std::chrono::steady_clock::now() + 1s;
      while (std::chrono::steady_clock::now() < end) {
        const uint64_t size = 1 + random() % 6000, at = random() % (kPart - size);
        std::string bytes(size, static_cast<char>(random()));
        oracle.replace(at, size, bytes);
        if (random() % 64 != 0) {
          failed += !file.write(c * kPart + at, bytes);
        } else {  // and one after it, over it, before it is answered
          std::atomic<bool> done{false};
          store->submit(file.transfer(Op::write, c * kPart + at, bytes), [&](Result<Reply>&& r) {
            failed += !r;
            done = true;
            done.notify_one();
          });
          oracle.replace(at, size, size, '!');
          failed += !file.write(c * kPart + at, std::string(size, '!'));
          done.wait(false);
        }
        if (random() % 512 == 0) failed += file.read(c * kPart, kPart) != oracle;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(content(path("f")), oracles[0] + oracles[1] + oracles[2]);
}

// What is in several pieces, of the file or of memory, is nobody's to write in common: also for one
// who asks for it with such a request.
TEST_F(InCommon, BesideOneWhoWritesLists) {
  const auto a = server_.connect().value(), b = server_.connect().value();
  Opened first(*a, "f"), second(*b, "f");
  share(first, second);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) EXPECT_TRUE(first.write(0, std::string(4096, '0')));
  });
  for (int round = 0; round < 8; ++round) {
    const auto c = server_.connect().value();
    Opened lists(*c, "f");
    std::string oracle(6000, 'o');
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(lists.write(8192, oracle));
    std::string bytes = random_bytes(random_, 3000);
    Request r = lists.transfer(Op::write, 8192, bytes);
    if (round % 2) {
      r.file = Extents::make({{Offset(8192), Length(1000)}}, {{3, 2000}}).value();
      for (size_t k = 0; k < 3; ++k) oracle.replace(2000 * k, 1000, bytes, 1000 * k, 1000);
    } else {
      r.memory.shape = Extents::make({{Offset(0), Length(10)}}, {{300, 10}}).value();
      oracle.replace(0, 3000, bytes);
    }
    ASSERT_TRUE(c->call(std::move(r)));
    EXPECT_EQ(content(path("f")).substr(8192), oracle);
    std::this_thread::sleep_for(300ms);  // until that is forgotten
  }
  over = true;
  other.join();
}

// What is acknowledged from memory must not come over what was written after it.
TEST_F(InCommon, BesideOneWhoseWritesAreAcknowledgedEarly) {
  const auto a = server_.connect().value(), b = server_.connect().value(),
             c = server_.connect_from_afar().value();
  Opened first(*a, "f"), second(*b, "f"), early(*c, "f");
  const std::string x(4096, 'x'), y(4096, 'y');
  ASSERT_TRUE(early.write(0, x));  // proves its right
  share(first, second);
  ASSERT_TRUE(early.write(0, x, kFlagBehind));
  ASSERT_TRUE(first.write(0, y));
  ASSERT_TRUE(c->call(early.request(Op::commit)));
  EXPECT_EQ(content(path("f")), y);
}

// Writes of other nodes that wait in memory, beside those of this node, on the same records, each
// of which one client at a time uses.
class BesideWriteBehind : public ::testing::TestWithParam<When> {
 protected:
  static constexpr uint64_t kRecord = 3000, kRecords = 24, kMost = 8;
  struct Record {
    std::mutex mutex;
    char value = '0';
  };
  static ExportOptions keeping() {
    ExportOptions options;
    options.write_behind.when = GetParam();
    options.write_behind.age = 20ms;
    options.write_behind.memory = 256_KiB;
    return options;
  }
  static uint64_t wrong(std::span<const Record> records, const std::string& bytes) {
    uint64_t n = 0;
    for (size_t i = 0; i < records.size(); ++i)
      n += bytes.substr(i * kRecord, kRecord) != std::string(kRecord, records[i].value);
    return n;
  }

  void use(bool far, uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto store = (far ? server_.connect_from_afar() : server_.connect()).value();
    Opened file(*store, "f");
    for (const auto end = std::chrono::steady_clock::now() + 4s;
         std::chrono::steady_clock::now() < end;) {
      // Now and then those of this node are among themselves.
      if (far && random() % 64 == 0) std::this_thread::sleep_for(400ms);
      const uint64_t first = random() % kRecords,
                     n = 1 + random() % std::min(kMost, kRecords - first);
      std::vector<std::unique_lock<std::mutex>> locks;
      for (uint64_t i = 0; i < n; ++i) locks.emplace_back(records_[first + i].mutex);
      const auto records = std::span(records_).subspan(first, n);
      if (random() % 64 == 0) {
        wrong_ += wrong(records, file.read(first * kRecord, n * kRecord));
        continue;
      }
      const char value = static_cast<char>('a' + random() % 26);
      for (Record& record : records) record.value = value;
      failed_ += !file.write(first * kRecord, std::string(n * kRecord, value),
                             far ? uint32_t{kFlagBehind} : 0u);
    }
    failed_ += !store->call(file.request(Op::commit));
    itself_ += file.itself();
  }

  ServerProcess server_{impatient(), keeping(), make_posix};
  std::array<Record, kRecords> records_;
  std::atomic<uint64_t> wrong_{0}, failed_{0}, itself_{0};
};
INSTANTIATE_TEST_SUITE_P(InCommon, BesideWriteBehind, ::testing::Values(When::asked, When::always),
                         [](const auto& mode) {
                           return std::string(mode.param == When::asked ? "Asked" : "Always");
                         });

TEST_P(BesideWriteBehind, NothingOlderComesOverIt) {
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  ASSERT_TRUE(file.write(0, std::string(kRecord * kRecords, '0')));
  const uint64_t seed = test_seed();
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back([this, i, seed] { use(i == 3, seed + i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed_, 0u);
  EXPECT_EQ(wrong_, 0u);
  EXPECT_EQ(wrong(records_, content(server_.directory() + "/export/f")), 0u);
  EXPECT_GT(itself_, 0u) << "shortcuts";
}

// Around the page cache a write is several calls.
TEST_F(InCommon, BesideOneWhoGoesAroundThePageCache) {
  constexpr uint64_t kRecord = 20'000, kFirst = 100;
  const auto a = server_.connect().value(), b = server_.connect().value(),
             c = server_.connect().value();
  Opened first(*a, "f"), second(*b, "f");
  share(first, second);
  Opened direct(*c, "f", Access::both, kFlagDirect);
  ASSERT_TRUE(direct.write(kFirst, std::string(kRecord, '0')));
  std::atomic<bool> over{false};
  std::atomic<uint64_t> failed{0}, torn{0};
  std::vector<std::thread> threads;
  for (Opened* file : {&first, &second}) {
    threads.emplace_back([&, file] {
      for (char v = 'a'; !over; v = v == 'z' ? 'a' : static_cast<char>(v + 1)) {
        failed += !file->write(kFirst, std::string(kRecord, v));
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    failed += !direct.write(kFirst, std::string(kRecord, static_cast<char>('A' + i % 26)));
    const std::string seen = direct.read(kFirst, kRecord);
    torn += seen != std::string(kRecord, seen[0]);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(failed, 0u);
}

// Small writes that nobody waits for, many at a time, each over bytes of the last ones.
TEST_F(InCommon, ManyAtATime) {
  constexpr uint64_t kPart = 256_KiB;
  constexpr size_t kClients = 3;
  std::array<std::string, kClients> oracles;
  std::array<uint64_t, kClients> itself{};
  std::atomic<uint64_t> failed{0};
  std::vector<std::thread> threads;
  for (size_t c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c, seed = random_()] {
      std::mt19937_64 random(seed);
      const auto store = server_.connect().value();
      Opened file(*store, "f");
      std::string& oracle = oracles[c];
      oracle.assign(kPart, '\0');
      failed += !file.write(c * kPart, oracle);
      const auto end = std::chrono::steady_clock::now() + 1s;
      while (std::chrono::steady_clock::now() < end) {
        std::vector<std::string> bytes(1 + random() % 16);
        std::atomic<size_t> left{bytes.size()};
        uint64_t at = random() % kPart;
        for (std::string& one : bytes) {
          const bool goes_on = random() % 4 != 0;
          const uint64_t size = 1 + random() % (random() % 8 ? 4096 : 100'000);
          if (!goes_on || at + size > kPart) at = random() % (kPart - size);
          one.assign(size, static_cast<char>(random()));
          oracle.replace(at, size, one);
          store->submit(file.transfer(Op::write, c * kPart + at, one), [&](Result<Reply>&& r) {
            failed += !r;
            left -= 1;
            left.notify_one();
          });
          at += size;
        }
        if (random() % 8 == 0) failed += file.read(c * kPart, kPart) != oracle;
        for (size_t now = left; now != 0; now = left) left.wait(now);
      }
      itself[c] = file.itself();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(content(path("f")), oracles[0] + oracles[1] + oracles[2]);
  fmt::print("{} requests by shortcuts\n", itself[0] + itself[1] + itself[2]);
}

// One after the other, by one client: those that go on from each other are few calls.
TEST_F(InCommon, WhatGoesOnIsWrittenTogether) {
  constexpr size_t kLeast = 400, kAtATime = 8;
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  std::string oracle;
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (size_t i = 0; i < kLeast || file.itself() == 0; ++i) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "no shortcut was given";
    std::array<std::string, kAtATime> bytes;
    std::atomic<size_t> left{kAtATime};
    for (std::string& one : bytes) {
      one = random_bytes(random_, 1000);
      const uint64_t at = oracle.size();
      oracle += one;
      store->submit(file.transfer(Op::write, at, one), [&](Result<Reply>&& r) {
        EXPECT_EQ(r.value().count, 1000u);
        left -= 1;
        left.notify_one();
      });
    }
    for (size_t now = left; now != 0; now = left) left.wait(now);
  }
  EXPECT_EQ(content(path("f")), oracle);
}

// What one client sends before it has the answer is seldom a reason to take the file back from it:
// only if none of it has come when it asks.
TEST_F(InCommon, AloneWithRequestsUnderWay) {
  constexpr size_t kAtATime = 8, kSize = 1000;
  const auto store = server_.connect().value();
  Opened file(*store, "f");
  std::array<std::string, kAtATime> bytes;
  bytes.fill(std::string(kSize, 'a'));
  std::atomic<size_t> left{0}, failed{0};
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (size_t i = 0; i < 5000 || file.itself() == 0; ++i) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "no shortcut was given";
    for (size_t now = left; now >= kAtATime; now = left) left.wait(now);
    left += 1;
    store->submit(file.transfer(Op::write, i * kSize, bytes[i % kAtATime]), [&](Result<Reply>&& r) {
      failed += !r;
      left -= 1;
      left.notify_one();
    });
  }
  for (size_t now = left; now != 0; now = left) left.wait(now);
  EXPECT_EQ(failed, 0u);
  const auto status = control(server_.address(), "status", 10s, ServerProcess::runtime()).value();
  const size_t at = status.find(R"("wanted_back": )");
  ASSERT_NE(at, std::string::npos);
  fmt::print("{}\n", status.substr(at, 20));
}

// A program may close descriptors that it does not know, and have others by their numbers.
TEST_F(InCommon, NobodysDescriptorIsClosed) {
  int own = -1;
  {
    const auto store = server_.connect().value();
    Opened file(*store, "f");
    file.take();
    for (int fd = 3; fd < 1024 && own < 0; ++fd) {
      std::string link(4096, '\0');
      const ssize_t n = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), link.data(), 4096);
      if (n > 0 && link.substr(0, static_cast<size_t>(n)) == path("f")) own = fd;
    }
    ASSERT_GE(own, 0);
    const int other = ::open(path("f").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::dup2(other, own), own);
    ::close(other);
    ASSERT_TRUE(file.write(0, std::string(100'000, 'n')));
    ASSERT_TRUE(store->call(file.request(Op::close)));
  }
  EXPECT_GE(::fcntl(own, F_GETFD), 0);
  EXPECT_EQ(content(path("f")).substr(0, 100'000), std::string(100'000, 'n'));
  ::close(own);
}

}  // namespace
}  // namespace forebay
