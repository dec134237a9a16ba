#include "mpiio/cache_part.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace forebay::mpiio {
namespace {

// Copies under a lock are often over before a sleep would have begun.
constexpr int kLooks = 100;
constexpr int kLooksBetweenYields = 20;
constexpr uint64_t kAlignment = 4096;

uint64_t rounded(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

uint64_t chain_count(const CacheShape& shape) {
  return std::bit_ceil(shape.pages());
}

// Pages that are remembered: more than there are, so that what comes back late is known too.
uint64_t came_count(const CacheShape& shape) {
  return 4 * chain_count(shape);
}

}  // namespace

void FutexLock::lock() {
  uint32_t free = 0;
  if (word_.compare_exchange_strong(free, 1, std::memory_order_acquire)) return;
  for (int look = 1; look <= kLooks; ++look) {
    free = 0;
    if (word_.load(std::memory_order_relaxed) == 0 &&
        word_.compare_exchange_strong(free, 1, std::memory_order_acquire))
      return;
    if (look % kLooksBetweenYields == 0) ::sched_yield();
  }
  // Not the private kind: other processes wait on the same memory.
  while (word_.exchange(2, std::memory_order_acquire) != 0)
    ::syscall(SYS_futex, &word_, FUTEX_WAIT, 2, nullptr, nullptr, 0);
}

void FutexLock::unlock() {
  if (word_.exchange(0, std::memory_order_release) == 2)
    ::syscall(SYS_futex, &word_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Where the pieces of a part lie in its space.
struct CachePart::Places {
  uint64_t chains, came, slots, bits, pages, end;

  explicit Places(const CacheShape& shape) {
    chains = rounded(sizeof(Head), 64);
    came = rounded(chains + chain_count(shape) * sizeof(uint32_t), 64);
    slots = rounded(came + came_count(shape) * sizeof(uint64_t), 64);
    bits = rounded(slots + shape.pages() * sizeof(Slot), 64);
    pages = rounded(bits + shape.pages() * (shape.page_size / 8), kAlignment);
    end = rounded(pages + shape.pages() * shape.page_size, kAlignment);
  }
};

uint64_t CachePart::space(const CacheShape& shape) {
  return Places(shape).end;
}

// Zeros are an empty part, so nothing is put there: it would be memory touched.
CachePart::CachePart(void* space, const CacheShape& shape) : shape_(shape) {
  static_assert(std::is_trivially_destructible_v<Head> && std::is_trivially_destructible_v<Slot>);
  auto* const base = static_cast<std::byte*>(space);
  const Places at(shape);
  head_ = reinterpret_cast<Head*>(base);
  chains_ = reinterpret_cast<uint32_t*>(base + at.chains);
  came_ = reinterpret_cast<uint64_t*>(base + at.came);
  slots_ = reinterpret_cast<Slot*>(base + at.slots);
  bits_ = reinterpret_cast<uint64_t*>(base + at.bits);
  pages_ = base + at.pages;
}

// Its number among the part's own.
uint64_t CachePart::own_number(uint64_t page) const {
  const uint64_t in_realm = shape_.realm_size / shape_.page_size;
  return page / in_realm / shape_.parts * in_realm + page % in_realm;
}

uint32_t& CachePart::chain(uint64_t page) const {
  return chains_[own_number(page) & (chain_count(shape_) - 1)];
}

bool CachePart::came_before(uint64_t page) {
  uint64_t& came = came_[own_number(page) & (came_count(shape_) - 1)];
  return std::exchange(came, page + 1) == page + 1;
}

CachePart::Slot* CachePart::find(uint64_t page) {
  for (uint32_t i = chain(page); i != 0; i = slots_[i - 1].next)
    if (slots_[i - 1].page == page) return &slots_[i - 1];
  return nullptr;
}

CachePart::Slot* CachePart::take(uint64_t page) {
  Slot* slot = unused();
  if (!slot) slot = by_clock();
  if (!slot) return nullptr;
  uint32_t& first = chain(page);
  *slot = {.page = page, .next = first, .dirty = {}, .taken = true};
  first = static_cast<uint32_t>(index(*slot)) + 1;
  return slot;
}

void CachePart::release(Slot& slot) {
  const auto number = static_cast<uint32_t>(index(slot)) + 1;
  uint32_t* link = &chain(slot.page);
  while (*link != number) link = &slots_[*link - 1].next;
  *link = slot.next;
  dirty(slot).clear();
  slot = {.next = head_->free, .dirty = {}};
  head_->free = number;
}

CachePart::Slot* CachePart::unused() {
  if (head_->free != 0) {
    Slot& slot = slots_[head_->free - 1];
    head_->free = slot.next;
    return &slot;
  }
  return head_->touched < shape_.pages() ? &slots_[head_->touched++] : nullptr;
}

CachePart::Slot* CachePart::by_clock() {
  for (uint64_t steps = 2 * shape_.pages(); steps > 0; --steps) {
    Slot& slot = slots_[head_->hand];
    head_->hand = (head_->hand + 1) % static_cast<uint32_t>(shape_.pages());
    if (slot.dirty.any() || slot.pinned == head_->operation) continue;
    if (std::exchange(slot.used, false)) continue;
    release(slot);
    ++head_->passed;
    return unused();
  }
  return nullptr;
}

void CachePart::add_dirty(Slot& slot, uint32_t from, uint32_t to) {
  dirty(slot).add(from, to);
  if (dirty_throughout(slot)) slot.filled = true;
  const uint64_t end = slot.page * shape_.page_size + to;
  if (end > dirty_end()) set_dirty_end(end);
}

void CachePart::keep(const Error& error) {
  if (head_->kept_code != 0) return;
  head_->kept_code = error.code();
  head_->kept_unknown = error.is_outcome_unknown();
  const size_t length = std::min(error.what().size(), head_->kept_text.size() - 1);
  std::memcpy(head_->kept_text.data(), error.what().data(), length);
  head_->kept_text[length] = 0;
}

std::optional<Error> CachePart::take_kept() {
  if (head_->kept_code == 0) return std::nullopt;
  Error error(std::exchange(head_->kept_code, 0), head_->kept_text.data());
  if (head_->kept_unknown) error = std::move(error).with_unknown_outcome();
  return error;
}

}  // namespace forebay::mpiio
