// SharedState: what the ranks that opened one MPI file share, and nothing of it in the file system:
// a few 64-bit values (shared file pointers, outcomes) and fair locks on ranges of bytes (atomic
// mode).
//
// Three implementations: NodeState (node_state.h), memory that the ranks of one node share;
// AttrState (attr_state.h), attributes at the server of a file whose ranks are on several nodes;
// and ArbiterClient (arbiter_client.h), a helper thread on rank 0 for those without a server. All
// ranks of a file use the same one. None makes an MPI call.
//
// Threads: every call from any thread, also while another waits for a lock.
//
// Locks: granted in the order of arrival as far as they conflict, all ranges of one at once. So
// nobody starves, and nobody deadlocks who holds at most one at a time. Implementations may lock
// more bytes than they were asked for, up to the whole file, so whoever asks for a second lock
// while it holds one may wait for ever.
#pragma once

#include <cstdint>
#include <utility>

#include "attr/range_locks.h"
#include "core/extents.h"
#include "core/result.h"

namespace forebay::mpiio {

// One of the values, all 0 in the beginning. Numbers count modulo 2^64: a step back is its two's
// complement.
enum class Slot : uint32_t { shared_pointer = 0 };
inline constexpr uint32_t kPointers = 8;  // the first are for shared pointers of views
inline constexpr uint32_t kSlots = 64;    // the others for outcomes (outcomes.h)

using attr::LockMode;

class SharedState {
 public:
  virtual ~SharedState() = default;

  virtual Result<uint64_t> get(Slot slot) = 0;
  virtual Result<void> set(Slot slot, uint64_t value) = 0;
  // Both return the value before.
  virtual Result<uint64_t> fetch_and_add(Slot slot, uint64_t step) = 0;
  virtual Result<uint64_t> compare_and_swap(Slot slot, uint64_t expected, uint64_t desired) = 0;

  // A lock that is held; unlocked when destroyed, which waits for nobody else. Must not outlive the
  // state.
  class Held {
   public:
    Held() = default;  // nothing
    Held(Held&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), ticket_(other.ticket_) {}
    Held& operator=(Held&& other) noexcept {
      if (this != &other) {
        release();
        state_ = std::exchange(other.state_, nullptr);
        ticket_ = other.ticket_;
      }
      return *this;
    }
    ~Held() { release(); }

    explicit operator bool() const { return state_ != nullptr; }
    void release() {
      if (state_) std::exchange(state_, nullptr)->unlock(ticket_);
    }

   private:
    friend class SharedState;
    Held(SharedState* state, uint64_t ticket) : state_(state), ticket_(ticket) {}

    SharedState* state_ = nullptr;
    uint64_t ticket_ = 0;
  };

  // Waits for its turn. No bytes at all need no lock: nothing is held then.
  Result<Held> lock(const Extents& ranges, LockMode mode) {
    if (ranges.empty()) return Held();
    auto ticket = acquire(ranges, mode);
    if (!ticket) return std::move(ticket).error();
    return Held(this, *ticket);
  }

 private:
  virtual Result<uint64_t> acquire(const Extents& ranges, LockMode mode) = 0;
  virtual void unlock(uint64_t ticket) = 0;
};

}  // namespace forebay::mpiio
