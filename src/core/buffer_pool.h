// BufferPool: the bounded memory through which a server moves bulk data.
//
// A fixed number of buffers of one size, cut from one anonymous mapping that becomes resident only
// as it is touched; free buffers are reused last-in first-out so that a lightly loaded server stays
// small. Any thread.
//
// Invariants:
//  1. At most capacity() buffers are out at any time; a Buffer returns itself when destroyed.
//  2. Those who wait are served in the order in which they came; nobody overtakes by try_take().
//  3. A waiter's callback runs on the thread that returned the buffer, never under the pool's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/callback.h"

namespace forebay {

class BufferPool;

// One buffer, owned. Movable; returns to its pool when destroyed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { release(); }

  explicit operator bool() const { return pool_ != nullptr; }
  std::span<std::byte> bytes() const { return bytes_; }
  void release();

 private:
  friend class BufferPool;
  Buffer(BufferPool* pool, std::span<std::byte> bytes) : pool_(pool), bytes_(bytes) {}
  BufferPool* pool_ = nullptr;
  std::span<std::byte> bytes_;
};

class BufferPool {
 public:
  // `total` is rounded down to whole buffers, at least 4. Buffers are page-aligned.
  BufferPool(uint64_t total, uint64_t buffer_size);
  ~BufferPool();  // asserts that every buffer came back and nobody waits
  BufferPool(const BufferPool&) = delete;

  uint64_t buffer_size() const { return buffer_size_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t in_use() const;

  // A buffer now, or an empty one if none is free or somebody waits.
  Buffer try_take();

  // A buffer as soon as there is one; `ready` may run at once, on this thread. Returns a ticket for
  // forget(), or 0 if `ready` has run.
  using Ready = Callback<void(Buffer)>;
  uint64_t take(Ready ready);
  // Stops waiting; false if the buffer was already handed over.
  bool forget(uint64_t ticket);

  // Memory outside the pool that counts against it: takes buffers out of use and gives their pages
  // back to the kernel, so that the holder may allocate as much elsewhere (a long extent list). It
  // waits in the same queue; all charges together take at most half of the pool, and wait among
  // themselves for that, so that requests that hold a list can still get a data buffer.
  // bytes must be at most max_charge(), a quarter of the pool.
  class Charge;
  using Charged = Callback<void(Charge)>;
  uint64_t max_charge() const { return capacity_ / 4 * buffer_size_; }
  uint64_t charge(uint64_t bytes, Charged ready);

 private:
  friend class Buffer;
  void give_back(std::span<std::byte> bytes);

  const uint64_t buffer_size_;
  const uint64_t capacity_;
  std::byte* base_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<std::span<std::byte>> free_;
  struct Waiter;
  std::deque<Waiter> waiting_;
  uint64_t next_ticket_ = 1;
  uint64_t charged_ = 0;
};

}  // namespace forebay
