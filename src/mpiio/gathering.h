// Gathering: an allgather of a few bytes among ranks of one node, in memory that all of them map:
// the quickest way to agree on something when there are more ranks than cores, since everybody runs
// once and nobody passes messages on.
//
// Slots are used in turns: who comes to turn n + 1 has read what others left in turn n, and who is
// in turn n + 2 knows that all have come to n + 1. So two sets of slots are enough.
//
// Plain bytes without pointers, all 0 at first. All ranks call in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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

  // `all`: as many bytes of each rank, one after the other. `meanwhile` is called while it waits.
  template <class Meanwhile>
  void gather(const void* mine, size_t bytes, void* all, Meanwhile&& meanwhile) {
    FOREBAY_ASSERT(bytes <= kMostBytes);
    std::byte* turn =
        reinterpret_cast<std::byte*>(head_ + 1) + turn_ % 2 * slots(static_cast<int>(ranks_));
    std::memcpy(turn + rank_ * kMostBytes, mine, bytes);
    const uint32_t complete = ++turn_ * ranks_;  // wraps, as the count does
    head_->arrived.add_and_wake_at(complete);
    head_->arrived.wait([&](uint32_t n) { return static_cast<int32_t>(n - complete) >= 0; },
                        meanwhile);
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      std::memcpy(static_cast<std::byte*>(all) + rank * bytes, turn + rank * kMostBytes, bytes);
  }

 private:
  struct Head {
    SignalWord arrived;  // in all turns together
  };
  static uint64_t slots(int ranks) { return static_cast<uint64_t>(ranks) * kMostBytes; }

  Head* head_;
  const uint32_t rank_, ranks_;
  uint32_t turn_ = 0;
};

}  // namespace forebay::mpiio
