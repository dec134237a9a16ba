#include "loop/timer_queue.h"

#include <algorithm>

#include "core/assert.h"

namespace forebay {

bool TimerQueue::later(const Entry& a, const Entry& b) {
  return a.due != b.due ? a.due > b.due : a.tie > b.tie;
}

Loop::TimerId TimerQueue::add(Time due, uint64_t tie, Task task) {
  if (free_.empty()) {
    FOREBAY_ASSERT(slots_.size() < (1u << kSlotBits));
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  ++slot.use;
  slot.armed = true;
  slot.task = std::move(task);
  ++live_;
  const Loop::TimerId id = slot.use << kSlotBits | index;
  heap_.push_back({due, tie, id});
  std::push_heap(heap_.begin(), heap_.end(), later);
  return id;
}

void TimerQueue::cancel(Loop::TimerId id) {
  if (!find(id)) return;
  release(id);
  sweep();
}

std::optional<Time> TimerQueue::next_due() {
  drop_cancelled();
  if (heap_.empty()) return std::nullopt;
  return heap_.front().due;
}

Task TimerQueue::pop_due(Time now) {
  drop_cancelled();
  if (heap_.empty() || heap_.front().due > now) return {};
  const Loop::TimerId id = heap_.front().id;
  std::pop_heap(heap_.begin(), heap_.end(), later);
  heap_.pop_back();
  return release(id);
}

void TimerQueue::clear() {
  // The tasks' destructors may cancel other timers, so they run when the queue is already empty.
  std::vector<Slot> dropped = std::exchange(slots_, {});
  free_.clear();
  heap_.clear();
  live_ = 0;
}

TimerQueue::Slot* TimerQueue::find(Loop::TimerId id) {
  const uint64_t index = id & ((1u << kSlotBits) - 1);
  if (index >= slots_.size()) return nullptr;
  Slot& slot = slots_[index];
  return slot.armed && slot.use == id >> kSlotBits ? &slot : nullptr;
}

Task TimerQueue::release(Loop::TimerId id) {
  Slot* slot = find(id);
  Task task = std::move(slot->task);
  slot->armed = false;
  free_.push_back(static_cast<uint32_t>(id & ((1u << kSlotBits) - 1)));
  --live_;
  return task;
}

void TimerQueue::drop_cancelled() {
  while (!heap_.empty() && !find(heap_.front().id)) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
}

void TimerQueue::sweep() {
  constexpr size_t kNotWorthIt = 64;
  if (heap_.size() < kNotWorthIt || heap_.size() < 2 * live_) return;
  std::erase_if(heap_, [this](const Entry& e) { return !find(e.id); });
  std::make_heap(heap_.begin(), heap_.end(), later);
}

}  // namespace forebay
