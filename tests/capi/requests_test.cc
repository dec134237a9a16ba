// Waiting, testing, cancelling; threads and forks.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "capi/store.h"
#include "rig.h"
#include "store/decorator.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

class CapiRequests : public Capi {};

TEST_F(CapiRequests, EachNonBlockingForm) {
  fb_file* file = open("/f");
  char out[] = "0123456789", in[11] = "";
  fb_request* request = nullptr;
  ASSERT_OK(fb_ipwrite(file, out, 10, 0, &request));
  EXPECT_EQ(fb_wait(&request), 10);
  EXPECT_EQ(request, nullptr);
  ASSERT_OK(fb_ifsync(file, &request));
  EXPECT_EQ(fb_wait(&request), 0);
  ASSERT_OK(fb_ifdatasync(file, &request));
  EXPECT_EQ(fb_wait(&request), 0);
  ASSERT_OK(fb_ipread(file, in, 10, 5, &request));
  EXPECT_EQ(fb_wait(&request), 5);
  EXPECT_STREQ(in, "56789");
  EXPECT_ERRNO(EINVAL, fb_wait(&request));
  EXPECT_ERRNO(EINVAL, fb_wait(nullptr));
  EXPECT_ERRNO(EINVAL, fb_cancel(nullptr));
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiRequests, TestSaysWhenItIsDone) {
  fb_file* file = open("/f");
  hold(Op::write);
  fb_request* request = nullptr;
  ASSERT_OK(fb_ipwrite(file, "x", 1, 0, &request));
  wait_until_held();
  int64_t result = 7;
  EXPECT_EQ(fb_test(&request, &result), 0);
  EXPECT_EQ(result, 7);
  release();
  int done = 0;
  while ((done = fb_test(&request, &result)) == 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(result, 1);
  EXPECT_EQ(request, nullptr);
  EXPECT_ERRNO(EINVAL, fb_test(&request, &result));
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiRequests, WaitAllTellsOfEach) {
  fb_file* file = open("/f");
  fb_file* reader = open("/f", O_RDONLY);
  fb_request* requests[4] = {};
  ASSERT_OK(fb_ipwrite(file, "abc", 3, 0, &requests[0]));
  ASSERT_OK(fb_ipwrite(reader, "abc", 3, 0, &requests[2]));
  ASSERT_OK(fb_ipwrite(file, "defg", 4, 3, &requests[3]));
  int64_t results[4] = {-1, -1, -1, -1};
  EXPECT_ERRNO(EBADF, fb_wait_all(4, requests, results));
  EXPECT_EQ(results[0], 3);
  EXPECT_EQ(results[1], 0);
  EXPECT_EQ(results[2], -EBADF);
  EXPECT_EQ(results[3], 4);
  for (fb_request* request : requests) EXPECT_EQ(request, nullptr);
  EXPECT_OK(fb_wait_all(4, requests, nullptr));
  EXPECT_OK(fb_wait_all(0, nullptr, nullptr));
  EXPECT_ERRNO(EINVAL, fb_wait_all(1, nullptr, nullptr));
  EXPECT_OK(fb_close(file));
  EXPECT_OK(fb_close(reader));
}

TEST_F(CapiRequests, WaitAnyTakesTheOneThatIsDone) {
  fb_file* file = open("/f");
  hold(Op::write);
  fb_request* requests[3] = {};
  ASSERT_OK(fb_ipwrite(file, "abc", 3, 0, &requests[0]));
  wait_until_held();
  ASSERT_OK(fb_ipwrite(file, "defg", 4, 100, &requests[2]));
  int64_t result = 0;
  EXPECT_EQ(fb_wait_any(3, requests, &result), 2);
  EXPECT_EQ(result, 4);
  EXPECT_EQ(requests[2], nullptr);
  EXPECT_NE(requests[0], nullptr);
  requests[1] = requests[0];
  EXPECT_ERRNO(EINVAL, fb_wait_any(3, requests, &result));  // it stands there twice
  requests[1] = nullptr;
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    release();
  });
  EXPECT_EQ(fb_wait_any(3, requests, &result), 0);
  EXPECT_EQ(result, 3);
  later.join();
  EXPECT_ERRNO(EINVAL, fb_wait_any(3, requests, &result));
  EXPECT_OK(fb_close(file));
}

// Whoever waits may not fall asleep over one store while another has the answer.
TEST_F(CapiRequests, WaitAnyOfTwoStores) {
  fb_store* second = nullptr;
  ASSERT_OK(fb_connect(server_.address().c_str(), "data", &second));
  fb_file *file = open("/f"), *other = nullptr;
  ASSERT_OK(fb_open(second, "/g", O_CREAT | O_RDWR, 0644, nullptr, &other));
  hold(Op::write);
  fb_request* requests[2] = {};
  ASSERT_OK(fb_ipwrite(other, "abc", 3, 0, &requests[1]));
  wait_until_held();
  ASSERT_OK(fb_ipwrite(file, "defg", 4, 0, &requests[0]));
  int64_t result = 0;
  EXPECT_EQ(fb_wait_any(2, requests, &result), 0);
  EXPECT_EQ(result, 4);
  release();
  EXPECT_EQ(fb_wait_any(2, requests, &result), 1);
  EXPECT_EQ(result, 3);
  EXPECT_OK(fb_close(file));
  EXPECT_OK(fb_close(other));
  EXPECT_OK(fb_disconnect(second));
}

// Waiting, testing and blocking calls on several threads, each of which may do the others' work.
TEST_F(CapiRequests, ManyThreadsWaitAtOnce) {
  fb_file* file = open("/f");
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([file, t] {
      for (unsigned i = 0; i < 100; ++i) {
        const std::string text(100 + i, static_cast<char>('a' + t));
        fb_request* request = nullptr;
        ASSERT_OK(fb_ipwrite(file, text.data(), text.size(), t * 1000, &request));
        int64_t result = 0;
        if (t == 0) {
          while (fb_test(&request, &result) == 0) {
          }
        } else if (t == 1) {
          std::string back(1, '?');
          EXPECT_GE(fb_pread(file, back.data(), 1, 500'000), 0);
          result = fb_wait(&request);
        } else {
          result = fb_wait(&request);
        }
        EXPECT_EQ(result, static_cast<int64_t>(text.size()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (unsigned t = 0; t < 4; ++t) {
    EXPECT_EQ(read(file, 199, t * 1000), std::string(199, static_cast<char>('a' + t)));
  }
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiRequests, WaitAnyUnderLoad) {
  fb_file* file = open("/f");
  constexpr size_t kDepth = 8;
  const std::string data(3000, 'x');
  fb_request* requests[kDepth] = {};
  int begun = 0, done = 0;
  for (auto& request : requests)
    ASSERT_OK(fb_ipwrite(file, data.data(), data.size(), 3000u * unsigned(begun++), &request));
  while (done < begun) {
    int64_t result = 0;
    const int64_t i = fb_wait_any(kDepth, requests, &result);
    ASSERT_GE(i, 0) << fb_error();
    ASSERT_EQ(result, 3000);
    ++done;
    if (begun == 500) continue;
    const uint64_t at = 3000u * static_cast<unsigned>(begun++);
    ASSERT_OK(fb_ipwrite(file, data.data(), data.size(), at, &requests[i]));
  }
  fb_attr attr;
  ASSERT_OK(fb_fstat(file, &attr));
  EXPECT_EQ(attr.size, 1'500'000u);
  EXPECT_OK(fb_close(file));
}

// Answers a write to whoever waits for it, who is then slow to leave.
class Lingering final : public Decorator {
 public:
  explicit Lingering(std::atomic<bool>& gone)
      : Decorator(std::make_unique<MemoryStore>()), gone_(gone) {}
  ~Lingering() override {
    EXPECT_FALSE(inside_);
    end_inner();
    gone_ = true;
  }
  void submit(Request&& request, Completion&& done) override {
    if (request.op != Op::write) return inner().submit(std::move(request), std::move(done));
    request_ = std::move(request);
    done_ = std::move(done);
  }
  void help(Callback<bool()> enough, bool) override {
    inside_ = true;
    inner().submit(std::move(request_), std::move(done_));
    EXPECT_TRUE(enough());
    answered.release();
    std::this_thread::sleep_for(50ms);
    inside_ = false;
  }

  std::binary_semaphore answered{0};

 private:
  Request request_;
  Completion done_;
  std::atomic<bool> inside_{false};
  std::atomic<bool>& gone_;
};

TEST(CapiDisconnect, WaitsForThreadsThatHelp) {
  std::atomic<bool> gone{false};
  auto lingering = std::make_unique<Lingering>(gone);
  std::binary_semaphore& answered = lingering->answered;
  auto* const store = new fb_store(std::move(lingering), this_process_caller());
  fb_file* file = nullptr;
  ASSERT_OK(fb_open(store, "/f", O_CREAT | O_RDWR, 0644, nullptr, &file));
  fb_request* request = nullptr;
  ASSERT_OK(fb_ipwrite(file, "x", 1, 0, &request));
  std::thread waiter([&] { EXPECT_EQ(fb_wait(&request), 1); });
  answered.acquire();
  EXPECT_OK(fb_close(file));
  EXPECT_OK(fb_disconnect(store));
  EXPECT_TRUE(gone);
  waiter.join();
}

TEST_F(CapiRequests, CancelGivesUpWhatHasNotBegun) {
  fb_file* file = open("/f");
  hold(Op::write);
  fb_request *first = nullptr, *second = nullptr;
  ASSERT_OK(fb_ipwrite(file, "first", 5, 0, &first));
  wait_until_held();
  ASSERT_OK(fb_ipwrite(file, "SECOND", 6, 0, &second));  // overlaps: waits for its turn
  EXPECT_OK(fb_cancel(second));
  EXPECT_OK(fb_cancel(second)) << "once more does nothing";
  EXPECT_ERRNO(ECANCELED, fb_wait(&second));
  release();
  EXPECT_EQ(fb_wait(&first), 5);
  EXPECT_EQ(read(file, 10), "first");
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiRequests, CancelFromAnotherThreadAtAnyTime) {
  fb_file* file = open("/f");
  const std::string data(200'000, 'x');
  for (int i = 0; i < 30; ++i) {
    fb_request* request = nullptr;
    ASSERT_OK(fb_ipwrite(file, data.data(), data.size(), 0, &request));
    std::thread canceller([request] { EXPECT_OK(fb_cancel(request)); });
    canceller.join();
    const int64_t got = fb_wait(&request);
    EXPECT_TRUE(got == 200'000 || (got == -1 && errno == ECANCELED)) << fb_error();
  }
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiRequests, CloseWaitsForWhatIsUnderWay) {
  fb_file* file = open("/f");
  hold(Op::write);
  fb_request* request = nullptr;
  ASSERT_OK(fb_ipwrite(file, "abc", 3, 0, &request));
  wait_until_held();
  std::atomic<bool> closed = false;
  std::thread closer([&] {
    EXPECT_OK(fb_close(file));
    closed = true;
  });
  char byte = 0;
  while (fb_pread(file, &byte, 1, 1000) == 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(errno, EBADF) << "nothing new on a file that is being closed";
  EXPECT_FALSE(closed);
  release();
  closer.join();
  int64_t result = 0;
  EXPECT_EQ(fb_test(&request, &result), 1) << "done, once the file is closed";
  EXPECT_EQ(result, 3);
}

TEST_F(CapiRequests, ManyThreadsOnOneFileAndConnection) {
  const uint64_t seed = test_seed();
  fb_file* shared = open("/shared");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (int i = 0; i < 20; ++i) {
        fb_file* own = open("/own" + std::to_string(t));
        const std::string data(1 + random() % 50'000, static_cast<char>('a' + t));
        fb_request* requests[3] = {};
        std::string back(data.size(), '?');
        wrong += fb_ipwrite(own, data.data(), data.size(), 0, &requests[0]) != 0;
        wrong += fb_ipwrite(shared, data.data(), data.size(), t * 100'000, &requests[1]) != 0;
        wrong += fb_ipread(shared, back.data(), back.size(), t * 100'000, &requests[2]) != 0;
        wrong += fb_set_hint(shared, "write_behind", i % 2 ? "on" : "off") != 0;
        wrong += fb_wait_all(3, requests, nullptr) != 0 || back != data;
        wrong += fb_close(own) != 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_OK(fb_close(shared));
}

TEST_F(CapiRequests, ThreadsThatUseAFileWhileItIsClosed) {
  for (int i = 0; i < 20; ++i) {
    fb_file* file = open("/f");
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([file] {
        char byte = 'x';
        fb_request* request = nullptr;
        while (fb_pwrite(file, &byte, 1, 0) == 1 && fb_ipread(file, &byte, 1, 0, &request) == 0)
          EXPECT_EQ(fb_wait(&request), 1) << fb_error();
        EXPECT_EQ(errno, EBADF) << fb_error();
      });
    }
    std::this_thread::sleep_for(2ms);
    EXPECT_OK(fb_close(file));
    for (auto& thread : threads) thread.join();
  }
}

// ---- Fork ----

template <class Fn>
void in_child(Fn&& fn) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    fn();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child failed: " << status;
}

class CapiFork : public Capi {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "TSan does not support threads made after the fork of a program with threads";
#endif
    Capi::SetUp();
  }
};

TEST_F(CapiFork, AChildGoesOn) {
  fb_file* file = open("/f");
  write(file, "parent");
  hold(Op::write);
  fb_request* request = nullptr;
  ASSERT_OK(fb_ipwrite(file, "later", 5, 100, &request));
  wait_until_held();
  server_.faults().clear();  // the rule, not what is held
  in_child([&] {
    EXPECT_EQ(read(file, 6), "parent");
    fb_request* mine = nullptr;
    EXPECT_OK(fb_ipwrite(file, "child", 5, 0, &mine));
    EXPECT_EQ(fb_wait(&mine), 5);
    int64_t result = 0;
    EXPECT_ERRNO(EINVAL, fb_wait(&request));  // the parent's
    EXPECT_ERRNO(EINVAL, fb_test(&request, &result));
    EXPECT_ERRNO(EINVAL, fb_wait_any(1, &request, &result));
    EXPECT_ERRNO(EINVAL, fb_cancel(request));
    in_child([&] { EXPECT_EQ(read(file, 6), "childt"); });
    fb_file* own = open("/own");
    write(own, "x");
    EXPECT_OK(fb_close(own));
    EXPECT_OK(fb_close(file)) << "does not wait for the parent's request";
    EXPECT_OK(fb_disconnect(store_));
  });
  release();
  EXPECT_EQ(fb_wait(&request), 5);
  EXPECT_EQ(read(file, 6), "childt");
  EXPECT_OK(fb_close(file));
}

TEST_F(CapiFork, WhileOtherThreadsAreInCalls) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "the sanitizer's allocator may be locked by another thread at the fork, and is so "
         "in the child";
#endif
  fb_file* file = open("/f");
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const std::string data(1000, 'x');
      while (!stop) {
        fb_file* own = open("/thread" + std::to_string(t));
        write(own, data);
        fb_request* request = nullptr;
        EXPECT_OK(fb_ipwrite(file, data.data(), data.size(), 0, &request));
        EXPECT_EQ(fb_wait(&request), 1000);
        EXPECT_OK(fb_close(own));
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    in_child([&] {
      fb_file* own = open("/child");
      write(own, "child");
      EXPECT_OK(fb_close(own));
      EXPECT_OK(fb_close(file));
    });
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_OK(fb_close(file));
}

}  // namespace
}  // namespace forebay
