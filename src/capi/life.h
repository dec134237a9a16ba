// Lives: a process and each child that it forks has a life of its own. What threads share (a lock,
// who waits, what is under way) belongs to a life, because in a child the locks of the parent may
// be held by threads that do not exist there, and what the parent had under way never ends.
//
// Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "client/fork_guard.h"

struct fb_file;

namespace forebay::capi {

struct Life {
  explicit Life(uint32_t generation) : number(generation) {}
  bool over() const { return guard.forked(); }  // we are a child of the process that made it

  const uint32_t number;  // 0 for the process that connected, 1 for its children, and so on
  const ForkGuard guard{};
  std::mutex mutex;
  std::condition_variable unused;  // the last use of a file that is being closed has ended
  std::deque<fb_file*> closed;     // by this process, the oldest first
};
using LifeRef = std::shared_ptr<Life>;

class Lives {
 public:
  Lives() : now_(new LifeRef(std::make_shared<Life>(0))) {}
  ~Lives() { delete now_.load(); }
  Lives(const Lives&) = delete;

  const LifeRef& now() {
    LifeRef* now = now_.load(std::memory_order_acquire);
    return (*now)->over() ? renew(now) : *now;
  }

 private:
  // In a child. The parent's life is left as it is, for good.
  const LifeRef& renew(LifeRef* parents) {
    auto mine = std::make_unique<LifeRef>(std::make_shared<Life>((*parents)->number + 1));
    if (now_.compare_exchange_strong(parents, mine.get())) return *mine.release();
    return *parents;  // another thread of this child was faster
  }

  std::atomic<LifeRef*> now_;
};

// Uses: how many calls and requests use a file, and whether it is closed. Starts closed.
//
// One word, so that a use costs two atomic operations and no lock: the number of the life in which
// the uses began (those of an earlier one are forgotten), a bit for closed, and the count. Once the
// bit is set, uses end under the life's lock, so that whoever closes may free everything as soon as
// it has seen the last one end.
class Uses {
 public:
  void open(const Life& life) { word_.store(start(life), std::memory_order_release); }

  bool begin(const Life& life) {  // false: closed
    uint64_t word = word_.load();
    do {
      if (word & kClosed) return false;
    } while (!word_.compare_exchange_weak(word, in_life(word, life) + 1));
    return true;
  }

  void end(Life& life) {
    uint64_t word = word_.load();
    while (!(word & kClosed))
      if (word_.compare_exchange_weak(word, word - 1)) return;
    std::lock_guard lock(life.mutex);
    word_.fetch_sub(1);
    life.unused.notify_all();
  }

  bool close(Life& life) {  // waits for the uses; false: it was closed already
    uint64_t word = word_.load();
    do {
      if (word & kClosed) return false;
    } while (!word_.compare_exchange_weak(word, in_life(word, life) | kClosed));
    std::unique_lock lock(life.mutex);
    life.unused.wait(lock, [&] { return (word_.load() & kCount) == 0; });
    return true;
  }

 private:
  static constexpr uint64_t kClosed = uint64_t{1} << 31;
  static constexpr uint64_t kCount = kClosed - 1;
  static uint64_t start(const Life& life) { return uint64_t{life.number} << 32; }
  static uint64_t in_life(uint64_t word, const Life& life) {
    return word >> 32 == life.number ? word : start(life);
  }

  std::atomic<uint64_t> word_{kClosed};
};

}  // namespace forebay::capi
