// NodeState: the SharedState of ranks on one node, in memory that all of them map.
//
// Values are atomics. The lock is one for the whole file, whatever the ranges: a fair one of
// readers and writers, by tickets. A waiter looks at it awake for a moment, then sleeps on a futex,
// and looks again now and then all the same.
//
// The ticket lock: each request takes the next ticket. `readers_turn` is the ticket up to which
// readers may enter, `writers_turn` counts the requests that have ended, so a writer with ticket t
// enters when it equals t: all before it are done. A reader lets the next ticket in as it enters, a
// writer as it leaves. Tickets wrap.
//
// A rank that dies while it holds the lock keeps it: its job ends with it, as MPI jobs do.
//
// Who makes what: one rank of the node puts a NodeMemory in the shared memory by `create`, the
// others wait for that (a barrier), and each makes a NodeState on it. Plain bytes without pointers,
// so that every process may map it elsewhere; nothing to destroy.
#pragma once

#include <array>
#include <atomic>

#include "mpiio/shared_state.h"

namespace forebay::mpiio {

struct NodeMemory {
  struct alignas(64) Value {
    std::atomic<uint64_t> number{0};
  };
  std::array<Value, kSlots> values{};

  alignas(64) std::atomic<uint32_t> next_ticket{0};
  alignas(64) std::atomic<uint32_t> readers_turn{0};  // futex
  std::atomic<uint32_t> writers_turn{0};              // futex
  std::atomic<uint32_t> sleepers{0};

  // `space`: sizeof(NodeMemory) bytes, aligned to 64, not in use yet.
  static NodeMemory* create(void* space);
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

class NodeState final : public SharedState {
 public:
  // The memory must outlive it.
  explicit NodeState(NodeMemory& memory) : memory_(memory) {}

  Result<uint64_t> get(Slot slot) override;
  Result<void> set(Slot slot, uint64_t value) override;
  Result<uint64_t> fetch_and_add(Slot slot, uint64_t step) override;
  Result<uint64_t> compare_and_swap(Slot slot, uint64_t expected, uint64_t desired) override;

 private:
  Result<uint64_t> acquire(const Extents& ranges, LockMode mode) override;
  void unlock(uint64_t ticket) override;

  std::atomic<uint64_t>& at(Slot slot);
  void wait_for(std::atomic<uint32_t>& turn, uint32_t ticket);
  void advance(std::atomic<uint32_t>& turn);

  NodeMemory& memory_;
};

}  // namespace forebay::mpiio
