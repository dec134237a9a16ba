// Processes that gather what they write, while some are killed, stopped, or may not write at all.
#include "store/gathered_writes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "core/fd.h"
#include "core/testing.h"

namespace forebay::posix {
namespace {

using Choice = GatheredWrites::Choice;
using Piece = GatheredWrites::Piece;
using Bytes = std::string;

// What the processes share beside it.
struct Board {
  std::atomic<uint32_t> done[64];
};

class Room {
 public:
  Room()
      : bytes_(static_cast<std::byte*>(map(GatheredWrites::space()))),
        board_(static_cast<Board*>(map(sizeof(Board)))) {}
  ~Room() {
    ::munmap(bytes_, GatheredWrites::space());
    ::munmap(board_, sizeof(Board));
  }
  std::byte* space() const { return bytes_; }
  Board& board() const { return *board_; }

 private:
  static void* map(size_t size) {
    return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  std::byte* const bytes_;
  Board* const board_;
};

class OpenFile final : public GatheredWrites::File {
 public:
  explicit OpenFile(const std::string& path, int flags = O_RDWR)
      : fd_(::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, 0600)) {}
  int descriptor() const override { return fd_.get(); }

 private:
  const Fd fd_;
};

Bytes contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Memory memory_of(const Bytes& bytes) {
  return Memory::of(std::as_bytes(std::span(bytes)));
}

// As a client would: together, or else alone.
bool put_in_file(GatheredWrites& with_others, const OpenFile& file, uint64_t at,
                 const Bytes& bytes) {
  if (with_others.write(file, Offset(at), memory_of(bytes))) return true;
  with_others.make_way(file, {Offset(at), Length(bytes.size())});
  return ::pwrite(file.descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(at)) ==
         static_cast<ssize_t>(bytes.size());
}

// Impatient with those who are stopped.
constexpr GatheredWrites::Waits kShort{std::chrono::milliseconds(20),
                                       std::chrono::milliseconds(200)};

pid_t start(const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(work());
  return pid;
}

int status_of(pid_t pid) {
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

// Of process p's piece k.
Bytes piece_of(uint32_t p, uint32_t k, size_t length) {
  Bytes bytes(length, static_cast<char>('a' + p % 26));
  const uint64_t mark = uint64_t(p) << 32 | k;
  std::memcpy(bytes.data(), &mark, sizeof mark);
  std::memcpy(bytes.data() + length - sizeof mark, &mark, sizeof mark);
  return bytes;
}

class GatheredWritesTest : public testing::Test {
 protected:
  const uint64_t seed_ = test_seed();
  TempDir folder_;
  const std::string path_ = folder_ / "file";
  Room room_;
};

// One after the other and several at a time, in turn with the others', as they come.
TEST_F(GatheredWritesTest, EveryPieceIsInTheFile) {
  constexpr uint32_t kProcesses = 6, kPieces = 400;
  for (const size_t length : {64, 100, 512, 1000, 4096, 12345, 16384}) {
    ::unlink(path_.c_str());
    const uint64_t head = length * 7 / 3;  // the grid's phase
    Room room;
    std::vector<pid_t> processes;
    for (uint32_t p = 0; p < kProcesses; ++p) {
      processes.push_back(start([&] {
        std::mt19937_64 random(seed_ + p);
        GatheredWrites with_others(room.space(), Choice::always, {});
        const OpenFile file(path_);
        for (uint32_t k = 0; k < kPieces;) {
          std::vector<Piece> pieces;
          std::vector<std::pair<uint64_t, Bytes>> written;
          for (auto n = 1 + random() % 9; n > 0 && k < kPieces; --n, ++k) {
            const uint64_t at = head + (uint64_t(k) * kProcesses + p) * length;
            written.emplace_back(at, piece_of(p, k, length));
            pieces.emplace_back();
            if (with_others.put(file, Offset(at), memory_of(written.back().second), pieces.back()))
              continue;
            pieces.back().alone = true;
          }
          with_others.settle(file, pieces);
          for (size_t i = 0; i < pieces.size(); ++i) {
            const auto& [at, bytes] = written[i];
            if (pieces[i].alone && ::pwrite(file.descriptor(), bytes.data(), length,
                                            static_cast<off_t>(at)) != ssize_t(length))
              return 1;
          }
          if (random() % 50 == 0) ::usleep(random() % 300);
        }
        room.board().done[p] = static_cast<uint32_t>(with_others.together());
        return 0;
      }));
    }
    for (const pid_t pid : processes) ASSERT_EQ(status_of(pid), 0) << length;
    const Bytes all = contents(path_);
    ASSERT_EQ(all.size(), head + uint64_t(kProcesses) * kPieces * length);
    uint32_t together = 0;
    for (uint32_t p = 0; p < kProcesses; ++p) {
      together += room.board().done[p];
      for (uint32_t k = 0; k < kPieces; ++k) {
        const uint64_t at = head + (uint64_t(k) * kProcesses + p) * length;
        ASSERT_EQ(all.compare(at, length, piece_of(p, k, length)), 0) << length << " " << p << k;
      }
    }
    EXPECT_GT(together, 0u) << length;
  }
}

// Places of one grid, and of several grids over each other: each piece is there whole, or under
// pieces of others.
TEST_F(GatheredWritesTest, NothingIsTorn) {
  constexpr uint32_t kProcesses = 5, kPieces = 1500, kCells = 40;
  constexpr size_t kLength = 512;
  std::vector<pid_t> processes;
  for (uint32_t p = 0; p < kProcesses; ++p) {
    processes.push_back(start([&] {
      std::mt19937_64 random(seed_ + p);
      GatheredWrites with_others(room_.space(), Choice::always, {});
      const OpenFile file(path_);
      for (uint32_t k = 0; k < kPieces; ++k) {
        const uint64_t at = random() % kCells * kLength;
        if (!put_in_file(with_others, file, at, piece_of(p, k, kLength))) return 1;
      }
      return 0;
    }));
  }
  for (const pid_t pid : processes) ASSERT_EQ(status_of(pid), 0);
  const Bytes all = contents(path_);
  for (uint64_t at = 0; at < all.size(); at += kLength) {
    uint64_t first, last;
    std::memcpy(&first, all.data() + at, sizeof first);
    std::memcpy(&last, all.data() + at + kLength - sizeof last, sizeof last);
    EXPECT_EQ(first, last) << at;
    if (first != 0) {
      EXPECT_EQ(all.compare(at, kLength, piece_of(uint32_t(first >> 32), uint32_t(first), kLength)),
                0);
    }
  }
}

// What a writer knows to be written is there, whoever has been killed, and goes on being written.
TEST_F(GatheredWritesTest, KilledProcessesTakeNothingWithThem) {
  constexpr uint32_t kProcesses = 6, kRounds = 12;
  constexpr size_t kLength = 1024;
  const OpenFile file(path_);
  std::mt19937_64 random(seed_);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (auto& done : room_.board().done) done = 0;
    std::vector<pid_t> processes;
    for (uint32_t p = 0; p < kProcesses; ++p) {
      processes.push_back(start([&] {
        GatheredWrites with_others(room_.space(), Choice::always, {});
        for (uint32_t k = 0; k < 4000; ++k) {
          const uint64_t at = (uint64_t(k) * kProcesses + p) * kLength;
          if (!put_in_file(with_others, file, at, piece_of(p, k + round, kLength))) return 1;
          room_.board().done[p] = k + 1;
        }
        return 0;
      }));
    }
    ::usleep(static_cast<useconds_t>(random() % 15000));
    const size_t killed = 1 + random() % (kProcesses - 1);
    for (size_t p = 0; p < killed; ++p) ::kill(processes[p], SIGKILL);
    for (uint32_t p = 0; p < kProcesses; ++p) {
      const int status = status_of(processes[p]);
      if (p >= killed) {
        ASSERT_EQ(status, 0);
      }
    }
    const Bytes all = contents(path_);
    for (uint32_t p = 0; p < kProcesses; ++p) {
      for (uint32_t k = 0; k < room_.board().done[p]; ++k) {
        const uint64_t at = (uint64_t(k) * kProcesses + p) * kLength;
        ASSERT_EQ(all.compare(at, kLength, piece_of(p, k + round, kLength)), 0)
            << "round " << round << " process " << p << " piece " << k;
      }
    }
  }
}

TEST_F(GatheredWritesTest, AStoppedProcessIsNotWaitedForForLong) {
  constexpr uint32_t kProcesses = 5, kPieces = 3000;
  constexpr size_t kLength = 4096;
  std::vector<pid_t> processes;
  for (uint32_t p = 0; p < kProcesses; ++p) {
    processes.push_back(start([&] {
      GatheredWrites with_others(room_.space(), Choice::always, kShort);
      const OpenFile file(path_);
      for (uint32_t k = 0; k < kPieces; ++k) {
        const uint64_t at = (uint64_t(k) * kProcesses + p) * kLength;
        if (!put_in_file(with_others, file, at, piece_of(p, k, kLength))) return 1;
        room_.board().done[p] = k + 1;
      }
      return 0;
    }));
  }
  std::mt19937_64 random(seed_);
  const pid_t stopped = processes[0];
  for (int i = 0; i < 6; ++i) {  // with something in hand in one of them, most likely
    ::usleep(static_cast<useconds_t>(random() % 4000));
    ::kill(stopped, SIGSTOP);
    ::usleep(500'000);
    ::kill(stopped, SIGCONT);
  }
  for (const pid_t pid : processes) ASSERT_EQ(status_of(pid), 0);
  const Bytes all = contents(path_);
  for (uint32_t p = 0; p < kProcesses; ++p)
    for (uint32_t k = 0; k < kPieces; ++k)
      ASSERT_EQ(
          all.compare((uint64_t(k) * kProcesses + p) * kLength, kLength, piece_of(p, k, kLength)),
          0);
}

// Whoever may write writes, and whoever may not is told so; nobody else's is lost by it.
TEST_F(GatheredWritesTest, AWriterThatFailsFailsAlone) {
  constexpr uint32_t kProcesses = 4, kPieces = 2000;
  constexpr size_t kLength = 2048;
  constexpr uint64_t kLimit = kLength * 5000;
  std::vector<pid_t> processes;
  for (uint32_t p = 0; p < kProcesses; ++p) {
    processes.push_back(start([&] {
      const OpenFile file(path_, p == 0 ? O_RDONLY : O_RDWR);
      if (p == 1) {  // files may be so long
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit most{kLimit, kLimit};
        ::setrlimit(RLIMIT_FSIZE, &most);
      }
      GatheredWrites with_others(room_.space(), Choice::always, {});
      for (uint32_t k = 0; k < kPieces; ++k) {
        const uint64_t at = (uint64_t(k) * kProcesses + p) * kLength;
        const bool together =
            with_others.write(file, Offset(at), memory_of(piece_of(p, k, kLength)));
        const bool good = together || ::pwrite(file.descriptor(), piece_of(p, k, kLength).data(),
                                               kLength, static_cast<off_t>(at)) == ssize_t(kLength);
        if (!good && (p > 1 || (p == 1 && at + kLength <= kLimit))) return 1;
        room_.board().done[p] += good;
      }
      return 0;
    }));
  }
  for (const pid_t pid : processes) ASSERT_EQ(status_of(pid), 0);
  const Bytes all = contents(path_);
  for (uint32_t p = 2; p < kProcesses; ++p)
    for (uint32_t k = 0; k < kPieces; ++k)
      ASSERT_EQ(
          all.compare((uint64_t(k) * kProcesses + p) * kLength, kLength, piece_of(p, k, kLength)),
          0);
}

// In the memory: one of them writes anything anywhere. Bytes of the file are lost then; nothing
// else is.
class Rubbish : public GatheredWritesTest, public testing::WithParamInterface<Choice> {};

TEST_P(Rubbish, DoesNotStopThem) {
  const pid_t rubbish = start([&] {
    std::mt19937_64 random(seed_);
    for (;;) {
      const uint64_t near = random() % 4 == 0 ? GatheredWrites::space() : 40_KiB;
      room_.space()[random() % near] = static_cast<std::byte>(random());
      if (random() % 64 == 0) ::usleep(50);
    }
    return 0;
  });
  std::vector<pid_t> processes;
  for (uint32_t p = 0; p < 4; ++p) {
    processes.push_back(start([&] {
      ::alarm(60);
      const OpenFile file(path_);
      const Time begin = SteadyClock().now();
      for (uint32_t k = 0; SteadyClock().now() - begin < std::chrono::seconds(2); ++k) {
        GatheredWrites with_others(room_.space(), GetParam(), kShort);
        for (uint32_t i = 0; i < 50; ++i) {
          const uint64_t at = (uint64_t(k % 100 * 50 + i) * 4 + p) * 1024;
          if (with_others.takes(1024) && !put_in_file(with_others, file, at, piece_of(p, k, 1024)))
            return 1;
          with_others.count(4_KiB);
        }
      }
      return 0;
    }));
  }
  for (const pid_t pid : processes) EXPECT_EQ(status_of(pid), 0);
  ::kill(rubbish, SIGKILL);
  status_of(rubbish);
}
INSTANTIATE_TEST_SUITE_P(Memory, Rubbish, testing::Values(Choice::always, Choice::by_trial));

// One that a program stops within a write.
class Stopping final : public GatheredWrites::File {
 public:
  explicit Stopping(const OpenFile& file) : file_(file) {}
  int descriptor() const override {
    ::raise(SIGSTOP);
    return file_.descriptor();
  }

 private:
  const OpenFile& file_;
};

char byte_at(const OpenFile& file, uint64_t at) {
  char c = 0;
  EXPECT_EQ(::pread(file.descriptor(), &c, 1, static_cast<off_t>(at)), 1);
  return c;
}

// What one who was killed had begun to write never comes over what is written then: at the same
// place, or at one that is cut otherwise.
TEST_F(GatheredWritesTest, NothingComesFromTheDead) {
  const OpenFile file(path_);
  for (const size_t length : {4096, 2048}) {
    Room room;
    const pid_t dead = start([&]() -> int {
      GatheredWrites with_others(room.space(), Choice::always, kShort);
      Piece piece;
      with_others.put(file, Offset(0), memory_of(Bytes(4096, 'D')), piece);
      ::raise(SIGKILL);
      return 0;
    });
    EXPECT_TRUE(WIFSIGNALED(status_of(dead)));
    GatheredWrites with_others(room.space(), Choice::always, kShort);
    EXPECT_TRUE(put_in_file(with_others, file, 0, Bytes(length, 'N')));
    for (uint64_t k = 1; k < 40; ++k)
      EXPECT_TRUE(put_in_file(with_others, file, k * 4096, Bytes(4096, 'x')));
    EXPECT_EQ(byte_at(file, 0), 'N') << length;
  }
}

// Nor from one who was stopped for long within a write, for whom the others have ceased to wait;
// nor what they had given to him, or to nobody yet.
TEST_F(GatheredWritesTest, NothingComesFromTheStoppedLater) {
  constexpr uint64_t kBlock = 4096, kHis = 32, kFirst = 33, kSecond = 64;
  const OpenFile file(path_);
  GatheredWrites with_others(room_.space(), Choice::always, kShort);
  std::array<Piece, 2> pieces;
  const Bytes a(kBlock, 'a'), b(kBlock, 'b');
  ASSERT_TRUE(with_others.put(file, Offset(kFirst * kBlock), memory_of(a), pieces[0]));
  const pid_t stopped = start([&] {
    const Stopping stops(file);
    GatheredWrites his(room_.space(), Choice::always, kShort);
    return his.write(stops, Offset(kHis * kBlock), memory_of(Bytes(kBlock, 'o'))) ? 0 : 1;
  });
  int status = 0;
  ::waitpid(stopped, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_TRUE(with_others.put(file, Offset(kSecond * kBlock), memory_of(b), pieces[1]));
  with_others.settle(file, pieces);
  EXPECT_TRUE(pieces[0].alone);
  EXPECT_FALSE(pieces[1].alone);
  for (const uint64_t k : {kFirst, kSecond})
    EXPECT_TRUE(put_in_file(with_others, file, k * kBlock, Bytes(kBlock, 'N')));
  for (uint64_t k = kSecond + 1; k < kSecond + 10; ++k)
    EXPECT_TRUE(put_in_file(with_others, file, k * kBlock, Bytes(kBlock, 'x')));
  for (int i = 0; i < 3; ++i) {
    ::usleep(50'000);
    ::kill(stopped, SIGCONT);
  }
  ::waitpid(stopped, &status, 0);
  EXPECT_EQ(byte_at(file, kFirst * kBlock), 'N');
  EXPECT_EQ(byte_at(file, kSecond * kBlock), 'N');
}

// Nor what was his when he was killed after all.
TEST_F(GatheredWritesTest, WhatWasGivenUpIsNotTakenOver) {
  constexpr uint64_t kBlock = 4096;
  const OpenFile file(path_);
  GatheredWrites with_others(room_.space(), Choice::always, kShort);
  Piece piece;
  ASSERT_TRUE(with_others.put(file, Offset(kBlock), memory_of(Bytes(kBlock, '1')), piece));
  const pid_t stopped = start([&] {
    const Stopping stops(file);
    GatheredWrites his(room_.space(), Choice::always, kShort);
    return his.write(stops, Offset(0), memory_of(Bytes(kBlock, 'o'))) ? 0 : 1;
  });
  int status = 0;
  ::waitpid(stopped, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  with_others.settle(file, {&piece, 1});
  ASSERT_TRUE(piece.alone);
  for (const char c : {'1', '2'})
    EXPECT_TRUE(put_in_file(with_others, file, kBlock, Bytes(kBlock, c)));
  ::kill(stopped, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status_of(stopped)));
  for (uint64_t k = 2; k < 10; ++k)
    EXPECT_TRUE(put_in_file(with_others, file, k * kBlock, Bytes(kBlock, 'x')));
  EXPECT_EQ(byte_at(file, kBlock), '2');
}

// One who has ended by another number of process in the room before: his cells are not the next
// one's.
TEST_F(GatheredWritesTest, TheDeadAreForgotten) {
  constexpr uint64_t kBlock = 4096;
  const OpenFile file(path_);
  const auto write_and_end = [&](uint64_t k) {
    return start([&, k]() -> int {
      GatheredWrites his(room_.space(), Choice::always, kShort);
      if (put_in_file(his, file, k * kBlock, Bytes(kBlock, 'd'))) ::raise(SIGKILL);
      return 1;
    });
  };
  EXPECT_TRUE(WIFSIGNALED(status_of(write_and_end(5))));
  GatheredWrites with_others(room_.space(), Choice::always, kShort);
  std::array<Piece, 2> pieces;
  const Bytes bytes(kBlock, 'n');
  for (uint64_t i = 0; i < 2; ++i)
    ASSERT_TRUE(with_others.put(file, Offset((5 + i) * kBlock), memory_of(bytes), pieces[i]));
  with_others.settle(file, pieces);
  for (uint64_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(pieces[i].alone);
    EXPECT_EQ(byte_at(file, (5 + i) * kBlock), 'n');
  }
}

// Of one process: they have one number, and the sanitizer sees them.
TEST_F(GatheredWritesTest, Threads) {
  constexpr uint32_t kThreads = 4, kPieces = 500;
  constexpr size_t kLength = 256;
  const OpenFile file(path_);
  GatheredWrites one(room_.space(), Choice::always, {}), other(room_.space(), Choice::always, {});
  std::vector<std::thread> threads;
  for (uint32_t p = 0; p < kThreads; ++p) {
    threads.emplace_back([&, p] {
      for (uint32_t k = 0; k < kPieces; ++k)
        EXPECT_TRUE(put_in_file(p % 2 ? one : other, file, (uint64_t(k) * kThreads + p) * kLength,
                                piece_of(p, k, kLength)));
    });
  }
  for (auto& thread : threads) thread.join();
  const Bytes all = contents(path_);
  for (uint32_t p = 0; p < kThreads; ++p)
    for (uint32_t k = 0; k < kPieces; ++k)
      ASSERT_EQ(
          all.compare((uint64_t(k) * kThreads + p) * kLength, kLength, piece_of(p, k, kLength)), 0);
}

}  // namespace
}  // namespace forebay::posix
