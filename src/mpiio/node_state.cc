#include "mpiio/node_state.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

namespace forebay::mpiio {

namespace {

// A lock of atomic mode is held for one read or write: often over before a sleep would have begun.
constexpr int kLooks = 200;
constexpr int kLooksBetweenYields = 20;
// No wake-up is lost as long as all ranks live; this bounds what one that died between unlocking
// and waking costs the others.
constexpr long kSleepNanoseconds = 100'000'000;

// The bit of the futex by which a ticket's owner is woken, and few others with it.
uint32_t bit(uint32_t ticket) {
  return uint32_t{1} << (ticket % 32);
}

// Not the private kind: other processes wait on the same memory.
void futex_sleep(std::atomic<uint32_t>& word, uint32_t seen, uint32_t ticket) {
  timespec until;
  ::clock_gettime(CLOCK_MONOTONIC, &until);  // this form of waiting takes a point in time
  until.tv_nsec += kSleepNanoseconds;
  if (until.tv_nsec >= 1'000'000'000) ++until.tv_sec, until.tv_nsec -= 1'000'000'000;
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &until, nullptr, bit(ticket));
}

void futex_wake(std::atomic<uint32_t>& word, uint32_t ticket) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, INT32_MAX, nullptr, nullptr, bit(ticket));
}

// A lock's ticket as SharedState keeps it: whether it is shared is the lowest bit.
uint64_t packed(uint32_t ticket, LockMode mode) {
  return uint64_t{ticket} << 1 | (mode == LockMode::shared ? 1 : 0);
}

}  // namespace

NodeMemory* NodeMemory::create(void* space) {
  FOREBAY_ASSERT(reinterpret_cast<uintptr_t>(space) % alignof(NodeMemory) == 0);
  return new (space) NodeMemory;
}

std::atomic<uint64_t>& NodeState::at(Slot slot) {
  const auto i = static_cast<uint32_t>(slot);
  FOREBAY_ASSERT(i < kSlots);
  return memory_.values[i].number;
}

Result<uint64_t> NodeState::get(Slot slot) {
  return at(slot).load();
}

Result<void> NodeState::set(Slot slot, uint64_t value) {
  at(slot).store(value);
  return {};
}

Result<uint64_t> NodeState::fetch_and_add(Slot slot, uint64_t step) {
  return at(slot).fetch_add(step);
}

Result<uint64_t> NodeState::compare_and_swap(Slot slot, uint64_t expected, uint64_t desired) {
  at(slot).compare_exchange_strong(expected, desired);  // leaves the value before in `expected`
  return expected;
}

Result<uint64_t> NodeState::acquire(const Extents&, LockMode mode) {
  const uint32_t ticket = memory_.next_ticket.fetch_add(1);
  if (mode == LockMode::exclusive) {
    wait_for(memory_.writers_turn, ticket);
  } else {
    wait_for(memory_.readers_turn, ticket);
    advance(memory_.readers_turn);
  }
  return packed(ticket, mode);
}

void NodeState::unlock(uint64_t ticket) {
  const bool shared = ticket & 1;
  if (!shared) advance(memory_.readers_turn);
  advance(memory_.writers_turn);
}

void NodeState::wait_for(std::atomic<uint32_t>& turn, uint32_t ticket) {
  for (int look = 1; look <= kLooks; ++look) {
    if (turn.load() == ticket) return;
    if (look % kLooksBetweenYields == 0) ::sched_yield();
  }
  // Whoever advances the turn looks for sleepers after it, and we look at the turn after we are
  // counted: one of the two sees the other.
  memory_.sleepers.fetch_add(1);
  for (uint32_t seen = turn.load(); seen != ticket; seen = turn.load()) {
    futex_sleep(turn, seen, ticket);
  }
  memory_.sleepers.fetch_sub(1);
}

void NodeState::advance(std::atomic<uint32_t>& turn) {
  const uint32_t now = turn.fetch_add(1) + 1;
  if (memory_.sleepers.load() != 0) futex_wake(turn, now);
}

}  // namespace forebay::mpiio
