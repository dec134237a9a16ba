// TimerQueue: the timers of one loop: a heap by due time, with tasks in reused slots, so that the
// timer of every request costs no allocation. A cancelled timer gives its slot back at once and
// leaves its heap entry to be skipped; entries are swept when most are such.
//
// Timers due at the same time run in the order of `tie`: the loop's choice (arrival, or at random).
// Not thread-safe: the loop's thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "loop/loop.h"

namespace forebay {

class TimerQueue {
 public:
  Loop::TimerId add(Time due, uint64_t tie, Task task);
  void cancel(Loop::TimerId id);  // no-op for one that ran or was cancelled

  std::optional<Time> next_due();
  // The next task that is due by `now`, or an empty one.
  Task pop_due(Time now);

  size_t size() const { return live_; }
  void clear();

 private:
  // An id is a slot and the number of its use. 40 bits of uses: never reused in practice.
  static constexpr unsigned kSlotBits = 24;

  struct Slot {
    uint64_t use = 0;
    bool armed = false;
    Task task;
  };
  struct Entry {
    Time due;
    uint64_t tie;
    Loop::TimerId id;
  };
  static bool later(const Entry& a, const Entry& b);

  Slot* find(Loop::TimerId id);
  Task release(Loop::TimerId id);
  void drop_cancelled();
  void sweep();

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::vector<Entry> heap_;
  size_t live_ = 0;
};

}  // namespace forebay
