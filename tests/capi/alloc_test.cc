// Memory from fb_alloc: random I/O from it against an oracle, failures, fork.
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "rig.h"

namespace forebay {
namespace {

class CapiAlloc : public Capi {
 protected:
  static constexpr size_t kMemory = 600'000;  // several chunks of the server
  void SetUp() override {
    Capi::SetUp();
    memory_ = static_cast<char*>(fb_alloc(store_, kMemory));
    ASSERT_TRUE(memory_) << fb_error();
  }
  void TearDown() override {
    EXPECT_OK(fb_free(store_, memory_));
    Capi::TearDown();
  }
  char* memory_ = nullptr;
};

TEST_F(CapiAlloc, RandomReadsAndWrites) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  fb_file* file = open("/f");
  std::string content, memory(kMemory, '\0');
  for (int i = 0; i < 400; ++i) {
    // Whole pages half of the time: only those are read without a copy.
    const size_t unit = random() % 2 ? 4096 : 1;
    const size_t length = (1 + random() % (random() % 4 ? 20'000 : 400'000) / unit) * unit;
    const size_t at = random() % ((kMemory - length) / unit + 1) * unit;
    const size_t offset = random() % 500'000;
    if (random() % 2) {
      for (size_t k = at; k < at + length; ++k)
        memory[k] = memory_[k] = static_cast<char>(random());
      ASSERT_EQ(fb_pwrite(file, memory_ + at, length, offset), static_cast<int64_t>(length))
          << fb_error();
      content.resize(std::max(content.size(), offset + length));
      content.replace(offset, length, memory, at, length);
    } else {
      const size_t there = offset < content.size() ? std::min(length, content.size() - offset) : 0;
      ASSERT_EQ(fb_pread(file, memory_ + at, length, offset), static_cast<int64_t>(there))
          << fb_error();
      memory.replace(at, there, content, std::min(offset, content.size()), there);
      // Beyond the end of file it holds what it held, or zeroes.
      memory.replace(at + there, length - there, memory_ + at + there, length - there);
    }
    ASSERT_TRUE(std::equal(memory.begin(), memory.end(), memory_)) << "round " << i;
  }
  EXPECT_TRUE(read(file, content.size() + 1) == content);
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiAlloc, ManyAtOnce) {
  fb_file* file = open("/f");
  constexpr size_t kPiece = 20'480, kPieces = 24;
  for (size_t i = 0; i < kPiece * kPieces; ++i) memory_[i] = static_cast<char>(i * 31 + i / 4096);
  fb_request* requests[kPieces];
  for (size_t i = 0; i < kPieces; ++i) {
    ASSERT_OK(
        fb_ipwrite(file, memory_ + i * kPiece, kPiece, (kPieces - 1 - i) * kPiece, &requests[i]));
  }
  int64_t results[kPieces];
  ASSERT_OK(fb_wait_all(kPieces, requests, results));
  const std::string all = read(file, kPiece * kPieces);
  for (size_t i = 0; i < kPieces; ++i) {
    EXPECT_EQ(results[i], static_cast<int64_t>(kPiece));
    EXPECT_TRUE(all.compare((kPieces - 1 - i) * kPiece, kPiece, memory_ + i * kPiece, kPiece) == 0);
  }
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiAlloc, AnErrorCarriesItsCountAndTheMemoryStaysUsable) {
  fb_file* file = open("/f");
  std::memset(memory_, 'x', 400'000);
  server_.faults().add({.op = Op::write,
                        .nth = server_.faults().calls(Op::write) + 1,
                        .action = FaultRule::Action::fail_before,
                        .error = ENOSPC});
  EXPECT_ERRNO(ENOSPC, static_cast<int>(fb_pwrite(file, memory_, 400'000, 0)));
  EXPECT_EQ(fb_error_done(), 4 * 65536u);  // the first part
  server_.faults().clear();
  EXPECT_EQ(memory_[99'999], 'x');
  EXPECT_EQ(fb_pwrite(file, memory_, 100'000, 0), 100'000);
  EXPECT_EQ(fb_pread(file, memory_, 98'304, 1), 98'304);
  EXPECT_OK(fb_close(file));
}

// Cancelled before it has begun, because another holds its range: nothing of it was written.
TEST_F(CapiAlloc, WhatIsCancelledInTheQueueHasWrittenNothing) {
  fb_file* file = open("/f");
  hold(Op::write);
  fb_request *first = nullptr, *second = nullptr;
  ASSERT_OK(fb_ipwrite(file, memory_, 8192, 0, &first));
  wait_until_held();
  ASSERT_OK(fb_ipwrite(file, memory_ + 8192, 200'000, 0, &second));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_OK(fb_cancel(second));
  EXPECT_ERRNO(ECANCELED, static_cast<int>(fb_wait(&second)));
  EXPECT_EQ(fb_error_done(), 0u);
  release();
  EXPECT_EQ(fb_wait(&first), 8192);
  EXPECT_OK(fb_close(file));
}

// The back end does not answer, the program gives up and uses its memory for something else.
TEST_F(CapiAlloc, WhatTheServerStillHoldsDoesNotChangeTheProgramsMemory) {
  fb_file* file = open("/f");
  write(file, std::string(8192, 'o'));
  hold(Op::read);
  fb_request* request = nullptr;
  ASSERT_OK(fb_ipread(file, memory_, 8192, 0, &request));
  wait_until_held();
  ASSERT_OK(fb_cancel(request));
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    release();
  });
  const int64_t got = fb_wait(&request);
  std::memset(memory_, 'n', 8192);
  releases.join();
  if (got < 0) {
    EXPECT_EQ(errno, ECANCELED);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(std::string(memory_, 8192), std::string(8192, 'n'));
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiAlloc, MoreThanThereIsToLendIsOrdinaryMemory) {
  void* const big = fb_alloc(store_, size_t{2} << 30);
  ASSERT_TRUE(big) << fb_error();
  fb_file* file = open("/f");
  EXPECT_EQ(fb_pwrite(file, big, 5000, 0), 5000);
  EXPECT_OK(fb_free(store_, big));
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiAlloc, AForkedChildUsesItToo) {
  fb_file* file = open("/f");
  std::memset(memory_, 'p', 10'000);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool wrote = fb_pwrite(file, memory_, 10'000, 0) == 10'000;
    void* const own = fb_alloc(store_, 8192);
    const bool read = own && fb_pread(file, own, 8192, 0) == 8192 &&
                      std::memcmp(own, memory_, 8192) == 0 && fb_free(store_, own) == 0;
    const bool freed = fb_free(store_, memory_) == 0;
    ::_exit(wrote && read && freed ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(fb_pread(file, memory_ + 16'384, 8192, 0), 8192);
  EXPECT_EQ(memory_[16'384], 'p');
  EXPECT_OK(fb_close(file));
}

}  // namespace
}  // namespace forebay
