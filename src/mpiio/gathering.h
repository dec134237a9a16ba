// Gathering: an allgather of a few bytes among ranks of one node, in memory that all of them map:
// the quickest way to agree on something when there are more ranks than cores, since everybody runs
// once and nobody passes messages on.
//
// Slots are used in turns: who comes to turn n + 1 has read what others left in turn n, and who is
// in turn n + 2 knows that all have come to n + 1. So two sets of slots are enough.
//
// Plain bytes without pointers, all 0 at first. All ranks call in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/result.h"
#include "mpiio/signal_word.h"

namespace forebay::mpiio {

class Gathering {
 public:
  static constexpr size_t kMostBytes = 512;  // of one rank

  static uint64_t space(int ranks) { return sizeof(Head) + 2 * slots(ranks); }
  Gathering(void* space, int rank, int ranks)
      : head_(static_cast<Head*>(space)),
        rank_(static_cast<uint32_t>(rank)),
        ranks_(static_cast<uint32_t>(ranks)) {}

  static constexpr size_t kMostTold = 64;

  // `all`: as many bytes of each rank, one after the other. `meanwhile` is called while it waits.
  template <class Meanwhile>
  void gather(const void* mine, size_t bytes, void* all, Meanwhile&& meanwhile) {
    FOREBAY_ASSERT(bytes <= kMostBytes);
    const std::byte* turn = leave(mine, bytes);
    const uint32_t complete = turn_ * ranks_;  // wraps, as the count does
    head_->arrived.add_and_wake_at(complete);
    head_->arrived.wait([&](uint32_t n) { return static_cast<int32_t>(n - complete) >= 0; },
                        meanwhile);
    copy(turn, bytes, all);
  }

  // The same, and whoever comes last runs act() when its `all` is there, before the others go on.
  // What that returns, plain bytes, is what all of them return. It must not throw.
  template <class Act, class Meanwhile>
  auto gather(const void* mine, size_t bytes, void* all, Act&& act, Meanwhile&& meanwhile) {
    using Told = decltype(act());
    FOREBAY_ASSERT(bytes <= kMostBytes);
    const std::byte* turn = leave(mine, bytes);
    ++acts_;
    const bool last = head_->arrived.value.fetch_add(1) + 1 == turn_ * ranks_;
    if (!last) head_->acted.wait([&](uint32_t n) { return n == acts_; }, meanwhile);
    copy(turn, bytes, all);
    return last ? tell<Told>(act()) : told<Told>();
  }

  // The same, but rank 0 is the one that acts.
  template <class Act, class Meanwhile>
  auto gather_at_first(const void* mine, size_t bytes, void* all, Act&& act,
                       Meanwhile&& meanwhile) {
    using Told = decltype(act());
    FOREBAY_ASSERT(bytes <= kMostBytes);
    const std::byte* turn = leave(mine, bytes);
    ++acts_;
    const uint32_t complete = turn_ * ranks_;
    head_->arrived.add_and_wake_at(complete);
    if (rank_ == 0)
      head_->arrived.wait([&](uint32_t n) { return n == complete; }, meanwhile);
    else
      head_->acted.wait([&](uint32_t n) { return n == acts_; }, meanwhile);
    copy(turn, bytes, all);
    return rank_ == 0 ? tell<Told>(act()) : told<Told>();
  }

 private:
  struct Head {
    SignalWord arrived;  // in all turns together
    SignalWord acted;    // how many times somebody acted for all
    std::array<std::array<std::byte, kMostTold>, 2> told;
  };

  // Ours of the next turn. Its slots.
  const std::byte* leave(const void* mine, size_t bytes) {
    std::byte* turn =
        reinterpret_cast<std::byte*>(head_ + 1) + ++turn_ % 2 * slots(static_cast<int>(ranks_));
    std::memcpy(turn + rank_ * kMostBytes, mine, bytes);
    return turn;
  }
  void copy(const std::byte* turn, size_t bytes, void* all) const {
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      std::memcpy(static_cast<std::byte*>(all) + rank * bytes, turn + rank * kMostBytes, bytes);
  }
  // What is told by who acted in this turn.
  template <class Told>
  Told tell(const Told& told) {
    static_assert(std::is_trivially_copyable_v<Told> && sizeof(Told) <= kMostTold);
    std::memcpy(head_->told[turn_ % 2].data(), &told, sizeof told);
    head_->acted.set_and_wake(acts_);
    return told;
  }
  template <class Told>
  Told told() const {
    Told told;
    std::memcpy(&told, head_->told[turn_ % 2].data(), sizeof told);
    return told;
  }
  static uint64_t slots(int ranks) { return static_cast<uint64_t>(ranks) * kMostBytes; }

  Head* head_;
  const uint32_t rank_, ranks_;
  uint32_t turn_ = 0, acts_ = 0;
};

}  // namespace forebay::mpiio
