#include "core/buffer_pool.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace forebay {
namespace {

uint64_t whole_pages(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  FOREBAY_ASSERT(bytes > 0 && bytes <= INT64_MAX);
  return (bytes + page - 1) / page * page;
}

// A buffer that is not out is nobody's to touch: the address sanitizer, if there is one, says who
// does. Memory of ours is otherwise always good, and a late write into it would go unseen.
void forbid([[maybe_unused]] std::span<std::byte> space) {
  ASAN_POISON_MEMORY_REGION(space.data(), space.size());
}
void allow([[maybe_unused]] std::span<std::byte> space) {
  ASAN_UNPOISON_MEMORY_REGION(space.data(), space.size());
}

// The pool whose waiters this thread is serving, if any: a callback that gives a buffer back
// returns to the serving loop instead of nesting another one.
thread_local const BufferPool* t_serving = nullptr;

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

void Buffer::release() {
  BufferPool* const pool = std::exchange(pool_, nullptr);
  const std::span<std::byte> bytes = std::exchange(bytes_, {});
  if (pool) pool->give_back({&bytes, 1}, 0);
}

BufferPool::Charge& BufferPool::Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    spaces_ = std::exchange(other.spaces_, {});
  }
  return *this;
}

uint64_t BufferPool::Charge::bytes() const {
  return pool_ ? spaces_.size() * pool_->buffer_size() : 0;
}

void BufferPool::Charge::release() {
  BufferPool* const pool = std::exchange(pool_, nullptr);
  const std::vector<Space> spaces = std::exchange(spaces_, {});
  if (pool) pool->give_back(spaces, spaces.size());
}

BufferPool::BufferPool(uint64_t total, uint64_t buffer_size, uint64_t part)
    : buffer_size_(whole_pages(buffer_size)),
      capacity_(std::max<uint64_t>(total / buffer_size_, 4)),
      part_(part) {
  FOREBAY_ASSERT(part_ >= 2);
  uint64_t mapped;
  if (__builtin_mul_overflow(capacity_, buffer_size_, &mapped)) throw std::bad_alloc();
  void* const at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(at);
  free_.reserve(capacity_);
  for (uint64_t i = capacity_; i-- > 0;) free_.emplace_back(base_ + i * buffer_size_, buffer_size_);
  forbid({base_, mapped});
}

BufferPool::BufferPool(std::span<std::byte> memory, uint64_t buffer_size,
                       std::shared_ptr<const void> owner)
    : buffer_size_(buffer_size),
      capacity_(memory.size() / buffer_size),
      base_(memory.data()),
      owner_(std::move(owner)) {
  FOREBAY_ASSERT(capacity_ > 0 && owner_);
  free_.reserve(capacity_);
  for (uint64_t i = capacity_; i-- > 0;) free_.emplace_back(base_ + i * buffer_size_, buffer_size_);
}

BufferPool::~BufferPool() {
  FOREBAY_ASSERT(free_.size() == capacity_, "buffers are still out: " + std::to_string(in_use()));
  FOREBAY_ASSERT(waiting_.empty() && over_.empty(), "somebody still waits for a buffer");
  allow({base_, capacity_ * buffer_size_});
  if (!owner_) ::munmap(base_, capacity_ * buffer_size_);
}

bool BufferPool::wanted() const {
  std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

uint64_t BufferPool::in_use() const {
  std::lock_guard lock(mutex_);
  return capacity_ - free_.size();
}

Buffer BufferPool::try_take() {
  std::lock_guard lock(mutex_);
  if (free_.empty() || !waiting_.empty()) return {};
  const Space space = free_.back();
  free_.pop_back();
  allow(space);
  return Buffer(this, space);
}

uint64_t BufferPool::take(Ready ready) {
  if (Buffer now = try_take()) {
    ready(std::move(now));
    return 0;
  }
  return wait({1, std::move(ready), {}});
}

uint64_t BufferPool::charge(uint64_t bytes, Charged ready) {
  FOREBAY_ASSERT(bytes <= max_charge());
  const uint64_t need = std::max<uint64_t>((bytes + buffer_size_ - 1) / buffer_size_, 1);
  return wait({need, {}, std::move(ready)});
}

// Queues, and serves whoever can be served, which may be this one.
uint64_t BufferPool::wait(Waiter waiter) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  (waiter.charged ? over_ : waiting_).emplace(ticket, std::move(waiter));
  admit_charges();
  serve(lock);
  const bool waits = waiting_.contains(ticket) || over_.contains(ticket);
  return waits ? ticket : 0;
}

bool BufferPool::forget(uint64_t ticket) {
  std::map<uint64_t, Waiter>::node_type forgotten;  // destroyed after the lock is released
  std::unique_lock lock(mutex_);
  forgotten = over_.extract(ticket);
  if (!forgotten) {
    forgotten = waiting_.extract(ticket);
    if (!forgotten) return false;
    if (forgotten.mapped().charged) charged_ -= forgotten.mapped().need;
  }
  admit_charges();
  serve(lock);
  return true;
}

void BufferPool::give_back(std::span<const Space> spaces, uint64_t charged) {
  for (const Space& space : spaces) forbid(space);
  std::unique_lock lock(mutex_);
  free_.insert(free_.end(), spaces.begin(), spaces.end());
  charged_ -= charged;
  admit_charges();
  serve(lock);
}

void BufferPool::admit_charges() {
  while (!over_.empty() && charged_ + over_.begin()->second.need <= capacity_ / 2) {
    charged_ += over_.begin()->second.need;
    waiting_.insert(over_.extract(over_.begin()));
  }
}

// Hands the first in the queue what it waits for, if there is enough. Buffers that are free while
// it needs more stay in free_ for it.
bool BufferPool::serve_one(std::unique_lock<std::mutex>& lock) {
  if (waiting_.empty() || free_.size() < waiting_.begin()->second.need) return false;
  Waiter next = std::move(waiting_.extract(waiting_.begin()).mapped());
  std::vector<Space> spaces;
  Space space;
  if (next.charged) {
    spaces.assign(free_.end() - static_cast<ptrdiff_t>(next.need), free_.end());
  } else {
    space = free_.back();
  }
  free_.resize(free_.size() - next.need);
  lock.unlock();
  if (next.charged) {
    for (const Space& s : spaces)
      if (!keeps_pages_) ::madvise(s.data(), s.size(), MADV_DONTNEED);
    next.charged(Charge(this, std::move(spaces)));
  } else {
    allow(space);
    next.ready(Buffer(this, space));
  }
  lock.lock();
  return true;
}

void BufferPool::serve(std::unique_lock<std::mutex>& lock) {
  if (t_serving == this) return;
  const BufferPool* const outer = std::exchange(t_serving, this);
  while (serve_one(lock)) {
  }
  t_serving = outer;
}

}  // namespace forebay
