#include "store/posix_fill.h"

#include <thread>

#include "store/posix_testing.h"

namespace forebay {
namespace {

class PosixFill : public testing::Test {
 protected:
  PosixFill() : fd_(::open((temp_ / "file").c_str(), O_RDWR | O_CREAT, 0600)) {}
  ~PosixFill() override { ::close(fd_); }

  int fill(uint64_t offset, uint64_t length) { return fill(offset, length, fd_); }
  int fill(uint64_t offset, uint64_t length, int reader) {
    auto done = posix::fill(fd_, reader, {Offset(offset), Length(length)}, stop_.get_token());
    return done ? 0 : done.error().code();
  }
  void write(uint64_t at, const std::string& text) {
    ASSERT_EQ(::pwrite(fd_, text.data(), text.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(text.size()));
  }
  std::string content() const { return content_of(temp_ / "file"); }
  struct stat status() const {
    struct stat st;
    ::fstat(fd_, &st);
    return st;
  }

  TempDir temp_;
  const int fd_;
  std::stop_source stop_;
};

TEST_F(PosixFill, AFileGetsLonger) {
  write(0, "abc");
  EXPECT_EQ(fill(0, 3_MiB + 5), 0);
  EXPECT_TRUE(content() == "abc" + std::string(3_MiB + 2, '\0'));
  ::fsync(fd_);
  EXPECT_GE(static_cast<uint64_t>(status().st_blocks) * 512, 3_MiB);
  EXPECT_EQ(fill(0, 10), 0);
  EXPECT_EQ(static_cast<uint64_t>(status().st_size), 3_MiB + 5);
}

TEST_F(PosixFill, BeyondTheEndLeavesAHoleBefore) {
  write(0, "abc");
  EXPECT_EQ(fill(5_MiB, 100), 0);
  EXPECT_TRUE(content() == "abc" + std::string(5_MiB + 97, '\0'));
  ::fsync(fd_);
  EXPECT_LT(static_cast<uint64_t>(status().st_blocks) * 512, 1_MiB);
}

// Of what is there not a byte changes, wherever it lies between holes.
class PosixFillHoles : public PosixFill, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Reader, PosixFillHoles, testing::Bool(),
                         [](const auto& reads) { return reads.param ? "Reads" : "WritesOnly"; });

TEST_P(PosixFillHoles, AreFilled) {
  const int reader = GetParam() ? fd_ : -1;
  std::string want(8_MiB, '\0');
  const auto put = [&](uint64_t at, const std::string& text) {
    write(at, text);
    want.replace(at, text.size(), text);
  };
  ASSERT_EQ(::ftruncate(fd_, 8_MiB), 0);
  put(1_MiB - 3, "across a page");
  put(4_MiB, std::string(64_KiB, 'x'));
  put(8_MiB - 1, "e");
  ::fsync(fd_);
  if (::lseek(fd_, 0, SEEK_HOLE) != 0) GTEST_SKIP() << "this file system shows no holes";
  EXPECT_EQ(fill(2_MiB, 3_MiB, reader), 0);
  EXPECT_TRUE(content() == want);
  ::fsync(fd_);
  const auto allocated = static_cast<uint64_t>(status().st_blocks) * 512;
  EXPECT_GE(allocated, 3_MiB);
  EXPECT_LT(allocated, 4_MiB);
  EXPECT_EQ(fill(0, 8_MiB, reader), 0);
  EXPECT_TRUE(content() == want);
  ::fsync(fd_);
  EXPECT_GE(static_cast<uint64_t>(status().st_blocks) * 512, 8_MiB);
}

// Whoever appends meanwhile keeps what it wrote; the file may be longer for it.
TEST_F(PosixFill, AppendsOfOthersStay) {
  const int other = ::open((temp_ / "file").c_str(), O_WRONLY | O_APPEND);
  std::jthread appends([other](const std::stop_token& stop) {
    const std::string record(1000, 'r');
    for (int i = 0; i < 2000 && !stop.stop_requested(); ++i)
      ASSERT_EQ(::write(other, record.data(), record.size()), 1000);
  });
  EXPECT_EQ(fill(0, 64_MiB), 0);
  appends.request_stop();
  appends.join();
  ::close(other);
  const std::string text = content();
  EXPECT_GE(text.size(), 64_MiB);
  const auto kept = static_cast<uint64_t>(std::ranges::count(text, 'r'));
  const auto zeros = static_cast<uint64_t>(std::ranges::count(text, '\0'));
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(kept % 1000, 0u);
  EXPECT_EQ(kept + zeros, text.size());
  for (size_t at = text.find('r'); at != std::string::npos; at = text.find('r', at + 1000))
    ASSERT_EQ(text.compare(at, 1000, std::string(1000, 'r')), 0) << at;
}

TEST_F(PosixFill, WhatThereIsNoRoomForWritesNothing) {
  write(0, "abc");
  EXPECT_EQ(fill(0, uint64_t{1} << 60), ENOSPC);
  EXPECT_EQ(content(), "abc");
}

TEST_F(PosixFill, CanBeStopped) {
  stop_.request_stop();
  EXPECT_EQ(fill(0, 1_MiB), ECANCELED);
  EXPECT_EQ(content(), "");
}

}  // namespace
}  // namespace forebay
