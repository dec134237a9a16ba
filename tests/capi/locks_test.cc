#include <atomic>
#include <thread>

#include "rig.h"

namespace forebay {
namespace {

class CapiLocks : public Capi {};

TEST_F(CapiLocks, OpenFilesExcludeEachOther) {
  fb_file *one = open("/f"), *two = open("/f");
  EXPECT_OK(fb_lock(one, FB_EXCLUSIVE, 0, 100));
  EXPECT_ERRNO(EAGAIN, fb_lock(two, FB_SHARED, 99, 1));
  EXPECT_OK(fb_lock(two, FB_EXCLUSIVE, 100, 0));
  fb_lock_held held;
  EXPECT_EQ(fb_lock_test(two, FB_SHARED, 0, 0, &held), 1);
  EXPECT_EQ(held.offset, 0u);
  EXPECT_EQ(held.length, 100u);
  EXPECT_EQ(held.how, FB_EXCLUSIVE);
  EXPECT_EQ(held.pid, static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(fb_lock_test(one, FB_SHARED, 0, 100, nullptr), 0);
  EXPECT_OK(fb_unlock(one, 0, 50));
  EXPECT_OK(fb_lock(two, FB_SHARED, 0, 50));
  EXPECT_ERRNO(EINVAL, fb_lock(one, 0, 0, 1));
  EXPECT_ERRNO(EINVAL, fb_lock(one, FB_SHARED | FB_EXCLUSIVE, 0, 1));
  EXPECT_OK(fb_close(one));
  EXPECT_OK(fb_lock(two, FB_EXCLUSIVE, 0, 0));
  EXPECT_OK(fb_close(two));
}

TEST_F(CapiLocks, ASharedLockNeedsReadingAnExclusiveOneWriting) {
  EXPECT_OK(fb_close(open("/f")));
  fb_file *reader = open("/f", O_RDONLY), *writer = open("/f", O_WRONLY);
  EXPECT_ERRNO(EBADF, fb_lock(reader, FB_EXCLUSIVE, 0, 1));
  EXPECT_ERRNO(EBADF, fb_lock(writer, FB_SHARED, 0, 1));
  EXPECT_OK(fb_lock(reader, FB_SHARED, 0, 1));
  EXPECT_OK(fb_lock(writer, FB_EXCLUSIVE, 1, 1));
  EXPECT_OK(fb_close(reader));
  EXPECT_OK(fb_close(writer));
}

// More threads wait than there are slots that may.
TEST_F(CapiLocks, ManyThreadsCountUnderALock) {
  constexpr int kThreads = 24, kTimes = 20;
  fb_file* const counter = open("/counter");
  write(counter, std::string(8, '\0'));
  std::vector<std::thread> threads;
  std::atomic<int> inside{0}, most{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      fb_file* const mine = open("/counter");
      for (int i = 0; i < kTimes; ++i) {
        ASSERT_OK(fb_lock(mine, FB_EXCLUSIVE | FB_WAIT, 0, 8));
        most = std::max(most.load(), ++inside);
        uint64_t value = 0;
        EXPECT_EQ(fb_pread(mine, &value, 8, 0), 8);
        ++value;
        EXPECT_EQ(fb_pwrite(mine, &value, 8, 0), 8);
        --inside;
        EXPECT_OK(fb_unlock(mine, 0, 8));
      }
      EXPECT_OK(fb_close(mine));
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t value = 0;
  EXPECT_EQ(fb_pread(counter, &value, 8, 0), 8);
  EXPECT_EQ(value, static_cast<uint64_t>(kThreads * kTimes));
  EXPECT_EQ(most, 1);
  EXPECT_OK(fb_close(counter));
}

}  // namespace
}  // namespace forebay
