// Records at a shared pointer against plain writes: every byte where it belongs, and every error
// whose it is.
#include "mpiio/record_writes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "core/testing.h"
#include "mpiio/realm_cache_testing.h"

namespace forebay::mpiio {
namespace {

using namespace std::chrono_literals;

class RecordWritesTest : public testing::Test {
 protected:
  static constexpr int kRanks = 5;

  void SetUp() override {
    for (int rank = 0; rank < kRanks; ++rank)
      ranks_.push_back(
          std::make_unique<RecordWrites>(static_cast<std::byte*>(space_.at()), rank, kRanks));
  }
  void on_ranks(const std::function<void(int)>& fn) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(fn, rank);
    for (std::thread& thread : threads) thread.join();
  }
  static plan::TiledMap memory_of(const Bytes& bytes) {
    const auto type = plan::TypeMap::bytes(static_cast<int64_t>(bytes.size()));
    return *plan::TiledMap::buffer(bytes.data(), 1, *type);
  }
  // As a disk on which nothing lies from `full_` on; says how far it came.
  Result<uint64_t> store(Extents file, Extents memory) {
    if (memory.pieces() > 1) ++together_;
    const Extent all = file.bounds();
    const uint64_t room = full_ - std::min(full_, all.offset.value);
    const uint64_t good = std::min(room, all.length.value);
    if (good > 0)
      file_.write(file.slice(Length(), Length(good)), memory.slice(Length(), Length(good))).value();
    if (good < all.length.value) return Error(ENOSPC, "full").with_done(good);
    return good;
  }
  // As a rank does it: together with others, or else alone.
  Result<uint64_t> write(int rank, uint64_t at, const Bytes& bytes) {
    const NodeRecords::Write by = [this](Extents file, Extents memory) {
      return store(std::move(file), std::move(memory));
    };
    if (ranks_[static_cast<size_t>(rank)]->write(Offset(at), memory_of(bytes), by))
      return bytes.size();
    return store(Extents(ext(at, bytes.size())), mpiio::at(bytes.data(), bytes.size()));
  }
  static Bytes record(uint64_t at, uint64_t length) {
    Bytes bytes(length);
    for (uint64_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>((at + i) * 31 >> 3);
    return bytes;
  }
  Bytes contents(uint64_t at, uint64_t length) {
    Bytes found(length);
    file_.read(Extents(ext(at, length)), mpiio::at(found.data(), length)).value();
    return found;
  }
  // Each rank, one record after the other, of random lengths, at the pointer. fn(result, at,
  // length) hears what became of each.
  template <class Fn>
  uint64_t write_all(int records, Fn&& fn) {
    std::atomic<uint64_t> pointer{0};
    const uint64_t seed = random_();
    on_ranks([&](int rank) {
      std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
      for (int i = 0; i < records; ++i) {
        const uint64_t length = 1 + random() % NodeRecords::kMostBytes;
        const uint64_t at = pointer.fetch_add(length);
        fn(write(rank, at, record(at, length)), at, length);
        if (random() % 64 == 0) std::this_thread::sleep_for(100us);
      }
    });
    return pointer.load();
  }

  std::mt19937_64 random_{test_seed()};
  SharedSpace space_{RecordWrites::space(kRanks)};
  std::vector<std::unique_ptr<RecordWrites>> ranks_;
  TestFile file_;
  uint64_t full_ = UINT64_MAX;
  std::atomic<uint64_t> together_{0};
};

// Whether ranks meet is a matter of time, so until they do.
TEST_F(RecordWritesTest, AreAllThere) {
  for (int round = 0; round < 200 && together_ < 100; ++round) {
    const uint64_t end =
        write_all(200, [this](const Result<uint64_t>& wrote, uint64_t at, uint64_t length) {
          EXPECT_EQ(wrote.value(), length);
          EXPECT_TRUE(contents(at, length) == record(at, length)) << "when the call returns";
        });
    ASSERT_TRUE(file_.contents() == record(0, end));
    file_.resize(0);
    for (const auto& one : ranks_) one->renew();
  }
  EXPECT_GE(together_, 100u);
}

// Those whose records have room succeed, the others fail, and the one in between says how far it
// came: whoever wrote them.
TEST_F(RecordWritesTest, EachHasItsOwnError) {
  for (int round = 0; round < 60; ++round) {
    full_ = random_() % (NodeRecords::kMostBytes * kRanks * 40);
    const uint64_t end =
        write_all(40, [&](const Result<uint64_t>& wrote, uint64_t at, uint64_t length) {
          const uint64_t room = full_ - std::min(full_, at);
          if (room >= length) {
            EXPECT_EQ(wrote.value(), length);
          } else {
            ASSERT_FALSE(wrote);
            EXPECT_EQ(wrote.error().code(), ENOSPC);
            EXPECT_EQ(wrote.error().done(), room);
          }
        });
    ASSERT_TRUE(file_.contents() == record(0, std::min(end, full_))) << "round " << round;
    file_.resize(0);
  }
}

// Records of two views, which do not touch.
TEST_F(RecordWritesTest, NeedNotTouch) {
  on_ranks([&](int rank) {
    for (uint64_t i = 0; i < 200; ++i) {
      const uint64_t at = (i * kRanks + static_cast<uint64_t>(rank)) * 5000;
      EXPECT_EQ(write(rank, at, record(at, 3000)).value(), 3000u);
    }
  });
  for (uint64_t i = 0; i < 200 * kRanks; ++i)
    ASSERT_TRUE(contents(i * 5000, 3000) == record(i * 5000, 3000));
}

// Of the threads of a rank one writes with others, and the rest by themselves.
TEST_F(RecordWritesTest, MayBeOfSeveralThreads) {
  std::atomic<uint64_t> pointer{0};
  const uint64_t seed = random_();
  on_ranks([&](int rank) {
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 3; ++thread)
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(seed + static_cast<uint64_t>(rank) * 3 + thread);
        for (int i = 0; i < 100; ++i) {
          const uint64_t length = 1 + random() % 5000;
          const uint64_t at = pointer.fetch_add(length);
          EXPECT_EQ(write(rank, at, record(at, length)).value(), length);
          EXPECT_TRUE(contents(at, length) == record(at, length));
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_TRUE(file_.contents() == record(0, pointer.load()));
}

TEST_F(RecordWritesTest, MayLieInPiecesInMemory) {
  constexpr int64_t kPieces = 40, kPiece = 70, kStride = 111;
  const auto type =
      plan::TypeMap::vector(kPieces, kPiece, kStride, *plan::TypeMap::bytes(1)).value();
  const NodeRecords::Write by = [this](Extents file, Extents memory) {
    return store(std::move(file), std::move(memory));
  };
  on_ranks([&](int rank) {
    Bytes buffer(kPieces * kStride);
    const plan::TiledMap memory = *plan::TiledMap::buffer(buffer.data(), 1, type);
    for (uint64_t i = 0; i < 100; ++i) {
      const uint64_t at = (i * kRanks + static_cast<uint64_t>(rank)) * kPieces * kPiece;
      const Bytes bytes = record(at, kPieces * kPiece);
      for (int64_t piece = 0; piece < kPieces; ++piece)
        std::copy_n(bytes.begin() + piece * kPiece, kPiece, buffer.begin() + piece * kStride);
      const bool written = ranks_[static_cast<size_t>(rank)]->write(Offset(at), memory, by);
      EXPECT_TRUE(written || write(rank, at, bytes));
    }
  });
  EXPECT_TRUE(file_.contents() == record(0, uint64_t{100} * kRanks * kPieces * kPiece));
}

// Nobody waits for who does not come, and soon it does not even look.
TEST_F(RecordWritesTest, AloneIsAlone) {
  for (uint64_t i = 0; i < 500; ++i) {
    EXPECT_EQ(write(2, i * 100, record(i * 100, 100)).value(), 100u);
  }
  EXPECT_TRUE(file_.contents() == record(0, 50'000));
  unsigned offered = 0;
  const NodeRecords::Write by = [&](Extents file, Extents memory) -> Result<uint64_t> {
    ++offered;
    return store(std::move(file), std::move(memory));
  };
  const Bytes one = record(0, 100);
  for (int i = 0; i < 500; ++i) ranks_[2]->write(Offset(0), memory_of(one), by);
  EXPECT_LE(offered, 20u);
}

// Rank 0 is another process, which is slow in the Store, and killed at some moment.
class KilledWriter : public RecordWritesTest {
 protected:
  // Writes records of 100 bytes beyond all others'; `slow`: for ever, the first.
  void begin(bool slow) {
    child_ = ::fork();
    FOREBAY_ASSERT(child_ >= 0);
    if (child_ != 0) return;
    const NodeRecords::Write by = [&](Extents file, Extents memory) -> Result<uint64_t> {
      *writing_ = true;
      while (slow) ::pause();
      std::this_thread::sleep_for(500us);
      return store(std::move(file), std::move(memory));
    };
    RecordWrites writes(static_cast<std::byte*>(space_.at()), 0, kRanks);
    const Bytes mine = record(0, 100);
    for (;;) writes.write(Offset(1'000'000), memory_of(mine), by);
  }
  void wait_until_it_writes() const {
    while (!*writing_) std::this_thread::sleep_for(1ms);
  }
  void kill_writer() const {
    end_writer();
    ::waitpid(child_, nullptr, 0);
  }
  // Nobody asks what became of it.
  void end_writer() const {
    ::kill(child_, SIGKILL);
    siginfo_t about;
    ::waitid(P_PID, static_cast<id_t>(child_), &about, WEXITED | WNOWAIT);
  }
  void stop_writer(std::chrono::microseconds time) const {
    ::kill(child_, SIGSTOP);
    std::this_thread::sleep_for(time);
    ::kill(child_, SIGCONT);
  }
  // Of the other ranks.
  void write_records(int rank, uint64_t records) {
    for (uint64_t i = 0; rank > 0 && i < records; ++i) {
      const uint64_t at = (i * (kRanks - 1) + static_cast<uint64_t>(rank) - 1) * 100;
      EXPECT_EQ(write(rank, at, record(at, 100)).value(), 100u);
    }
  }
  bool all_there(uint64_t records) {
    Bytes all = file_.contents();
    all.resize(std::min<uint64_t>(all.size(), records * (kRanks - 1) * 100));
    return all == record(0, records * (kRanks - 1) * 100);
  }

 private:
  SharedSpace word_{1};
  std::atomic<bool>* const writing_ = new (word_.at()) std::atomic<bool>(false);
  pid_t child_ = -1;
};

TEST_F(KilledWriter, ThatStandsStillKeepsNobodyWhoseRecordItDoesNotHave) {
  begin(true);
  wait_until_it_writes();
  on_ranks([&](int rank) { write_records(rank, 50); });
  EXPECT_TRUE(all_there(50));
  kill_writer();
}

TEST_F(KilledWriter, KeepsNobody) {
  for (int round = 0; round < 10; ++round) {
    begin(false);
    wait_until_it_writes();
    std::thread killer([&, pause = std::chrono::microseconds(random_() % 20'000)] {
      std::this_thread::sleep_for(pause);
      end_writer();
    });
    on_ranks([&](int rank) { write_records(rank, 300); });
    killer.join();
    kill_writer();
    EXPECT_TRUE(all_there(300));
    file_.resize(0);
    std::memset(space_.at(), 0, space_.size());
    for (const auto& one : ranks_) one->renew();
  }
}

// What it has, it writes when it goes on: so nobody writes to that place again before.
TEST_F(KilledWriter, ThatIsStoppedWritesNothingLate) {
  begin(false);
  wait_until_it_writes();
  std::atomic<bool> done{false};
  std::thread stopper([&, random = std::mt19937_64(random_())]() mutable {
    while (!done) {
      stop_writer(std::chrono::microseconds(random() % 100'000));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
  });
  on_ranks([&](int rank) {
    for (uint64_t i = 0; rank > 0 && i < 200; ++i) {
      const uint64_t at = static_cast<uint64_t>(rank) * 100;
      EXPECT_EQ(write(rank, at, record(at + i, 100)).value(), 100u);
      EXPECT_TRUE(contents(at, 100) == record(at + i, 100)) << "record " << i;
    }
  });
  done = true;
  stopper.join();
  kill_writer();
  for (uint64_t rank = 1; rank < kRanks; ++rank)
    EXPECT_TRUE(contents(rank * 100, 100) == record(rank * 100 + 199, 100));
}

}  // namespace
}  // namespace forebay::mpiio
