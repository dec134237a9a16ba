// One suite over both loops, then what only one of them promises.
#include "loop/loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "loop/sim_loop.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

template <class L>
std::unique_ptr<L> make_loop();
template <>
std::unique_ptr<EpollLoop> make_loop() {
  return std::make_unique<EpollLoop>();
}
template <>
std::unique_ptr<SimLoop> make_loop() {
  return std::make_unique<SimLoop>(test_seed());
}

template <class L>
class LoopTest : public testing::Test {
 protected:
  // Runs until pred holds, for at most ten seconds of the loop's own time.
  bool run_until(const std::function<bool()>& pred) {
    const Time end = loop.now() + 10s;
    while (!pred() && loop.now() < end) loop.run_one(end - loop.now());
    return pred();
  }

  std::unique_ptr<L> owner = make_loop<L>();
  Loop& loop = *owner;
};

using Loops = testing::Types<EpollLoop, SimLoop>;
TYPED_TEST_SUITE(LoopTest, Loops);

TYPED_TEST(LoopTest, PostsRunInOrderAndNeverInside) {
  std::string order;
  this->loop.post([&] {
    order += 'a';
    this->loop.post([&] { order += 'c'; });
    EXPECT_TRUE(this->loop.on_loop());
  });
  this->loop.post([&] { order += 'b'; });
  EXPECT_EQ(order, "");
  EXPECT_TRUE(this->run_until([&] { return order.size() == 3; }));
  EXPECT_EQ(order, "abc");
}

TYPED_TEST(LoopTest, TimersRunInOrderAndNotEarly) {
  std::string order;
  const Time start = this->loop.now();
  Duration waited{};
  this->loop.after(20ms, [&] {
    order += 'b';
    waited = this->loop.now() - start;
  });
  this->loop.after(5ms, [&] { order += 'a'; });
  const auto cancelled = this->loop.after(1ms, [&] { order += 'x'; });
  this->loop.cancel(cancelled);
  EXPECT_TRUE(this->run_until([&] { return order.size() == 2; }));
  EXPECT_EQ(order, "ab");
  EXPECT_GE(waited, 20ms);
}

TYPED_TEST(LoopTest, ATimerMayCancelAnotherAndSetNewOnes) {
  int ran = 0;
  Loop::TimerId victim = 0;
  this->loop.after(1ms, [&] {
    ++ran;
    this->loop.cancel(victim);
    this->loop.after(0ms, [&] { ++ran; });
  });
  victim = this->loop.after(500ms, [&] { ADD_FAILURE(); });
  EXPECT_TRUE(this->run_until([&] { return ran == 2; }));
  EXPECT_FALSE(this->loop.run_one(1ms));
}

TYPED_TEST(LoopTest, RunOneGivesUpAfterMost) {
  const Time start = this->loop.now();
  this->loop.after(10s, [] {});
  EXPECT_FALSE(this->loop.run_one(5ms));
  EXPECT_GE(this->loop.now() - start, 5ms);
  EXPECT_LT(this->loop.now() - start, 9s);
}

TYPED_TEST(LoopTest, EndlessPostsDoNotStarveTimers) {
  bool done = false;
  std::function<void()> again = [&] {
    if (!done) this->loop.post([&] { again(); });
  };
  again();
  this->loop.after(1ms, [&] { done = true; });
  if constexpr (std::is_same_v<TypeParam, SimLoop>) {
    // The virtual clock moves only when nothing is ready, by design.
    this->loop.after(0ms, [&] { done = true; });
  }
  EXPECT_TRUE(this->run_until([&] { return done; }));
  this->run_until([&] { return !this->loop.run_one(0ms); });
}

TYPED_TEST(LoopTest, ManyTimersAreCheap) {
  uint64_t ran = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto id = this->loop.after(1h, [&] { ++ran; });
    if (i % 100 != 0) this->loop.cancel(id);
    if (i % 100 == 0) this->loop.after(1us, [&] { ++ran; });
  }
  EXPECT_TRUE(this->run_until([&] { return ran == 1000; }));
}

TYPED_TEST(LoopTest, DestroyedLoopDropsWhatHasNotRun) {
  auto held = std::make_shared<int>();
  this->loop.post([held] { ADD_FAILURE(); });
  this->loop.after(0ms, [held] { ADD_FAILURE(); });
  EXPECT_EQ(held.use_count(), 3);
  this->owner.reset();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(EpollLoop, PostFromOtherThreadsWakesAndKeepsEachThreadsOrder) {
  EpollLoop loop;
  LoopThread runner(loop, "a name longer than fifteen");
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<int> seen(kThreads, 0);
  std::atomic<int> total{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        loop.post([&, t, i] {
          EXPECT_EQ(seen[t]++, i);
          EXPECT_TRUE(loop.on_loop());
          total.fetch_add(1);
        });
        if (i % 100 == 0) std::this_thread::sleep_for(100us);
      }
    });
  }
  for (auto& t : threads) t.join();
  std::promise<void> all;
  loop.post([&] { all.set_value(); });
  all.get_future().get();
  EXPECT_EQ(total.load(), kThreads * kEach);
  EXPECT_FALSE(loop.on_loop());
}

TEST(EpollLoop, WakeMakesAWaitReturn) {
  EpollLoop loop;
  std::thread waker([&] {
    std::this_thread::sleep_for(10ms);
    loop.wake();
  });
  const Time start = loop.now();
  loop.run_one(60s);
  EXPECT_LT(loop.now() - start, 30s);
  waker.join();
}

TEST(EpollLoop, ThreadsMayTakeTurns) {
  EpollLoop loop;
  std::mutex turn;
  int ran = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        std::lock_guard lock(turn);
        const int before = ran;
        loop.after(0ms, [&] { ++ran; });
        while (ran == before) loop.run_one(1s);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(ran, 600);
}

TEST(EpollLoop, TimersOfARunningLoopThreadFire) {
  EpollLoop loop;
  std::promise<void> fired;
  LoopThread runner(loop);
  loop.post([&] { loop.after(2ms, [&] { fired.set_value(); }); });
  EXPECT_EQ(fired.get_future().wait_for(10s), std::future_status::ready);
  runner.stop();
  runner.stop();
}

// News that comes through memory; here: none. It sleeps for much longer than it is told to, so that
// whoever is not interrupted is late.
class Sleeper final : public EpollLoop::Poller {
 public:
  static constexpr auto kLate = 10s;

  bool poll() override { return false; }
  bool rest() override { return true; }
  bool sleep(Duration) override {
    std::unique_lock lock(mutex_);
    ++sleeps_;
    changed_.notify_all();
    const bool woken = changed_.wait_for(lock, kLate, [this] { return interrupted_; });
    interrupted_ = false;
    return woken;
  }
  // What comes before the sleep ends it at once, as a futex's word does.
  void interrupt() override {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    changed_.notify_all();
  }
  void wait_until_asleep(unsigned times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return sleeps_ >= times; });
  }
  unsigned sleeps() {
    std::lock_guard lock(mutex_);
    return sleeps_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned sleeps_ = 0;
  bool interrupted_ = false;
};

TEST(EpollLoop, APostInterruptsASleepOnMemory) {
  EpollLoop loop;
  Sleeper sleeper;
  loop.poll(sleeper);
  bool ran = false;
  std::thread poster([&] {
    sleeper.wait_until_asleep(1);
    loop.post([&] { ran = true; });
  });
  const Time start = loop.now();
  while (!ran) loop.run_one(60s);
  EXPECT_LT(loop.now() - start, Sleeper::kLate / 2);
  poster.join();
  loop.forget(sleeper);
}

TEST(EpollLoop, AWakeInterruptsASleepOnMemory) {
  EpollLoop loop;
  Sleeper sleeper;
  loop.poll(sleeper);
  std::thread waker([&] {
    sleeper.wait_until_asleep(1);
    loop.wake();
  });
  const Time start = loop.now();
  EXPECT_FALSE(loop.run_one(60s)) << "nothing ran";
  EXPECT_LT(loop.now() - start, Sleeper::kLate / 2);
  waker.join();
  loop.forget(sleeper);
}

// At any moment on the way into the sleep.
TEST(EpollLoop, NoPostIsMissedByASleepOnMemory) {
  EpollLoop loop;
  Sleeper sleeper;
  constexpr int kPosts = 500;
  std::atomic<int> ran{0};
  Duration longest{};
  std::thread poster([&] {
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < kPosts; ++i) {
      const Time start = loop.now();
      loop.post([&] {
        loop.poll(sleeper);  // it would be lively no more after many turns without news
        ++ran;
      });
      while (ran.load() <= i) std::this_thread::yield();
      longest = std::max(longest, loop.now() - start);
      const Time until = loop.now() + std::chrono::microseconds(random() % 200);
      while (loop.now() < until) std::this_thread::yield();
    }
  });
  while (ran.load() < kPosts) loop.run_one(60s);
  poster.join();
  EXPECT_LT(longest, Sleeper::kLate / 2);
  EXPECT_GT(sleeper.sleeps(), 0u);
  loop.forget(sleeper);
}

std::string sim_trace(uint64_t seed) {
  SimLoop loop(seed);
  std::string trace;
  for (char c = 'a'; c <= 'z'; ++c) {
    loop.after(1ms, [&trace, c] { trace += c; });
    loop.after(1ms, [&loop, &trace, c] { loop.post([&trace, c] { trace += char(c - 32); }); });
  }
  loop.run_for(1s);
  return trace;
}

TEST(SimLoop, IsDeterministicFromItsSeed) {
  const uint64_t seed = test_seed();
  EXPECT_EQ(sim_trace(seed), sim_trace(seed));
  EXPECT_NE(sim_trace(seed), sim_trace(seed + 1));
  EXPECT_EQ(sim_trace(seed).size(), 52u);
}

TEST(SimLoop, RunUntilStopsAtThePredicateOrTheLimit) {
  SimLoop loop(1);
  int ran = 0;
  loop.after(1h, [&] { ++ran; });
  EXPECT_FALSE(loop.run_until([&] { return ran == 1; }, 1min));
  EXPECT_EQ(loop.now().since_start, 1min);
  EXPECT_TRUE(loop.run_until([&] { return ran == 1; }, 2h));
  EXPECT_EQ(loop.now().since_start, 1h);
  EXPECT_FALSE(loop.run_until([] { return false; }, 1h));  // nothing left: does not hang
  EXPECT_TRUE(loop.idle());
}

}  // namespace
}  // namespace forebay
