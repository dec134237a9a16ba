// BufferPool: the bounded memory through which a server moves bulk data.
//
// A fixed number of buffers of one size, cut from one anonymous mapping that becomes resident only
// as it is touched; free buffers are reused last-in first-out so that a lightly loaded server stays
// small. Any thread.
//
// Invariants:
//  1. At most capacity() buffers are out at any time; a Buffer returns itself when destroyed.
//  2. Those who wait are served in the order in which they came; nobody overtakes by try_take().
//  3. A waiter's callback runs on the thread that returned the buffer, never under the pool's lock,
//     and never inside another waiter's callback: a chain of waiters needs no stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
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
  // `buffer_size` is rounded up to whole pages, so that buffers are page-aligned; `total` is
  // rounded down to whole buffers, at least 4; one charge has at most 1/`part` of them, 2 at least.
  // Throws std::bad_alloc if there is no such address space.
  BufferPool(uint64_t total, uint64_t buffer_size, uint64_t part = 4);
  // Cut from memory that `owner` keeps: as many whole buffers as fit, at least one. For buffers
  // only, not for charges.
  BufferPool(std::span<std::byte> memory, uint64_t buffer_size, std::shared_ptr<const void> owner);
  ~BufferPool();  // asserts that every buffer came back and nobody waits
  BufferPool(const BufferPool&) = delete;

  // All of it, also what is free.
  std::span<std::byte> memory() const { return {base_, capacity_ * buffer_size_}; }
  // From now on its pages stay the same (because a device knows them): charges do not give theirs
  // back to the kernel. Before the first charge.
  void keep_pages() { keeps_pages_ = true; }
  uint64_t buffer_size() const { return buffer_size_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t in_use() const;
  bool wanted() const;  // somebody waits

  // A buffer now, or an empty one if none is free or somebody waits.
  Buffer try_take();

  // A buffer as soon as there is one; `ready` may run at once, on this thread. Returns a ticket for
  // forget(), or 0 if `ready` has run.
  using Ready = Callback<void(Buffer)>;
  uint64_t take(Ready ready);
  // Stops waiting, for a buffer or a charge; false if it was already handed over, or is being so on
  // another thread. Those behind it may get their turn, on this thread.
  bool forget(uint64_t ticket);

  // Memory outside the pool that counts against it: takes buffers out of use and gives their pages
  // back to the kernel, so that the holder may allocate as much elsewhere (a long extent list). It
  // waits in the same queue; all charges together take at most half of the pool, and wait among
  // themselves for that, so that requests that hold a list can still get a data buffer.
  // bytes must be at most max_charge().
  class Charge;
  using Charged = Callback<void(Charge)>;
  uint64_t max_charge() const { return capacity_ / part_ * buffer_size_; }
  uint64_t charge(uint64_t bytes, Charged ready);

 private:
  friend class Buffer;
  using Space = std::span<std::byte>;

  // One that waits: for one buffer (`ready`), or for `need` of them at once (`charged`).
  struct Waiter {
    uint64_t need = 1;
    Ready ready;
    Charged charged;
  };

  uint64_t wait(Waiter waiter);
  void give_back(std::span<const Space> spaces, uint64_t charged);
  void admit_charges();
  bool serve_one(std::unique_lock<std::mutex>& lock);
  void serve(std::unique_lock<std::mutex>& lock);

  const uint64_t buffer_size_;
  const uint64_t capacity_;
  const uint64_t part_ = 4;
  std::byte* base_ = nullptr;
  const std::shared_ptr<const void> owner_;  // null: the mapping is ours
  bool keeps_pages_ = false;
  mutable std::mutex mutex_;
  std::vector<Space> free_;  // the last one is the next to go
  // By ticket, which is the order of arrival. A charge that would pass half of the pool waits in
  // `over_`, where it is in nobody's way, and keeps its place for when it is admitted.
  std::map<uint64_t, Waiter> waiting_;
  std::map<uint64_t, Waiter> over_;
  uint64_t next_ticket_ = 1;
  uint64_t charged_ = 0;  // buffers of charges, held or admitted to waiting_
};

// Holds a part of the pool's memory without using it. Movable; gives it back when destroyed.
class BufferPool::Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept { *this = std::move(other); }
  Charge& operator=(Charge&& other) noexcept;
  ~Charge() { release(); }

  explicit operator bool() const { return pool_ != nullptr; }
  uint64_t bytes() const;  // as asked for, rounded up to whole buffers
  void release();

 private:
  friend class BufferPool;
  Charge(BufferPool* pool, std::vector<Space> spaces) : pool_(pool), spaces_(std::move(spaces)) {}
  BufferPool* pool_ = nullptr;
  std::vector<Space> spaces_;
};

}  // namespace forebay
