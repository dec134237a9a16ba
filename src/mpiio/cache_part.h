// CachePart: one part of a RealmCache: which pages of the file it holds, where, and what of them is
// dirty. Moves no bytes and makes no requests. A view of shared memory; every call but lock() under
// the part's lock.
//
// Pages are found through chains of slots in a table that is indexed by the page's number among the
// part's own, so that neighbours never share a chain before the table is full. Slots are reused by
// the clock method: a hand goes round, passes over what was used since it came by last, and takes
// the first clean one.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/types.h"
#include "mpiio/dirty_bytes.h"

namespace forebay::mpiio {

struct CacheShape {
  uint32_t parts = 1;
  // 64 KiB: a run of a few KiB costs its copy and little else, and tables stay small.
  uint64_t page_size = 64_KiB;   // a power of two, at least 64
  uint64_t part_bytes = 64_MiB;  // of pages; at least four, and an eighth more for bits
  uint64_t realm_size = 4_MiB;   // a multiple of the page size
  // Whole pages are taken only when they come for the second time: what is moved once and whole is
  // not worth a copy.
  bool patient = false;

  uint64_t pages() const { return part_bytes / page_size; }  // of a part
  uint32_t part_of(Offset at) const { return static_cast<uint32_t>(at.value / realm_size % parts); }
};

// A lock in shared memory. Whoever comes first when it is free gets it: handing it to the longest
// waiter would cost a switch of threads for each holder when there are more ranks than cores.
class FutexLock {
 public:
  void lock();
  void unlock();

 private:
  std::atomic<uint32_t> word_{0};  // 0 free, 1 held, 2 held and somebody may sleep
};

class CachePart {
 public:
  struct Slot {
    uint64_t page = 0;    // of the file
    uint64_t pinned = 0;  // the last operation that must not lose it
    uint32_t next = 0;    // in its chain, or of the free ones; a number + 1
    DirtyBounds dirty;
    bool taken = false;
    bool used = false;    // since the hand came by
    bool filled = false;  // what is not dirty is as in the Store
  };

  static uint64_t space(const CacheShape& shape);  // a multiple of 4096
  CachePart(void* space, const CacheShape& shape);

  FutexLock& lock() { return head_->lock; }

  Slot* find(uint64_t page);
  // A free slot, or the clock's choice among the clean ones that are not pinned; null if there is
  // none. It is in the table, unfilled.
  Slot* take(uint64_t page);
  void release(Slot& slot);
  // Pins are of one operation, and end with the next one's beginning.
  void begin_operation() { ++head_->operation; }
  void pin(Slot& slot) { slot.pinned = head_->operation; }

  std::byte* bytes(const Slot& slot) const { return pages_ + index(slot) * shape_.page_size; }
  DirtyBytes dirty(Slot& slot) const {
    return {slot.dirty, bits_ + index(slot) * (shape_.page_size / 64)};
  }
  bool dirty_throughout(Slot& slot) const {
    return dirty(slot).covers(0, static_cast<uint32_t>(shape_.page_size));
  }
  // Marks [from, to) of the page dirty, after its bytes were put there.
  void add_dirty(Slot& slot, uint32_t from, uint32_t to);

  // fn(Slot&) for each that is taken; it may release it.
  template <class Fn>
  void each(Fn&& fn) {
    for (uint32_t i = 0; i < head_->touched; ++i)
      if (slots_[i].taken) fn(slots_[i]);
  }

  // Data streams through: as many pages as there are have made room for others, and hardly anybody
  // came back to one. What is used once, and whole, is not worth a copy then.
  bool streaming() const { return head_->passed >= shape_.pages(); }
  void count_hit() { head_->passed -= std::min<uint64_t>(head_->passed, kHitWeight); }
  void forget_passed() { head_->passed = 0; }

  // Has this page come lately? Remembers it.
  bool came_before(uint64_t page);

  // Any time, without the lock.
  uint64_t dirty_end() const { return head_->dirty_end.load(); }
  void set_dirty_end(uint64_t end) { head_->dirty_end.store(end); }

  // Keeps the first error until it is asked for.
  void keep(const Error& error);
  std::optional<Error> take_kept();

 private:
  struct alignas(64) Head {
    FutexLock lock;
    uint32_t touched = 0;  // slots that were ever taken
    uint32_t free = 0;     // the first of those that are free again, + 1
    uint32_t hand = 0;
    uint64_t passed = 0;  // pages that made room, less what hits are worth
    uint64_t operation = 0;
    std::atomic<uint64_t> dirty_end{0};
    int32_t kept_code = 0;
    bool kept_unknown = false;
    std::array<char, 256> kept_text{};
  };
  static constexpr uint64_t kHitWeight = 8;
  struct Places;
  size_t index(const Slot& slot) const { return static_cast<size_t>(&slot - slots_); }
  uint64_t own_number(uint64_t page) const;
  uint32_t& chain(uint64_t page) const;
  Slot* unused();
  Slot* by_clock();

  CacheShape shape_;
  Head* head_;
  uint32_t* chains_;
  uint64_t* came_;  // numbers of pages, + 1
  Slot* slots_;
  uint64_t* bits_;
  std::byte* pages_;
};

}  // namespace forebay::mpiio
