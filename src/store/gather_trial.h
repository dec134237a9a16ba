// GatherTrial: are small writes of many processes faster together (gathered_writes.h) or each by
// itself? That depends on the file (new blocks are dear, those that are there cheap), on who else
// wants the processors, on how the writes lie: so it is tried. All do the same for an epoch of some
// thousand writes, then the other thing; the faster one is kept for as long as makes what the trial
// has cost a small part.
//
// Each by itself is tried first, and for a short time, in which they should stay near each other.
// Together has some epochs to show what it can do, because processes that have drifted apart have
// to meet first; but it is given up when it has cost too much.
//
// In memory that processes share: 0 at first. Any thread. Whoever ends at an epoch's end leaves the
// next one to the others; what it has left half done is only a guess that is not so good. Whatever
// stands there, it is no more than that.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/clock.h"

namespace forebay::posix {

class GatherTrial {
 public:
  static constexpr uint32_t kEpoch = 2048, kEpochAlone = 1024;  // writes; while it is tried
  static constexpr double kMeetings = 12;                       // epochs together, at most
  static constexpr double kMoreEpochs = 3;  // that those may take more than each by itself
  static constexpr int64_t kLeastRest = 32, kMostRest = 8192;  // epochs without a trial
  static constexpr double kLossIn = 64;                        // a part in so many is lost

  bool together() const { return together_.load(std::memory_order_relaxed); }
  bool tries_alone() const { return !together() && !settled_.load(std::memory_order_relaxed); }

  // So many have been written. `now()`: the time.
  template <class Now>
  void count(uint32_t writes, Now&& now) {
    const uint32_t before = count_.fetch_add(writes, std::memory_order_relaxed);
    if (before == 0) began_ = static_cast<uint64_t>(now().since_start.count());
    const uint32_t epoch = tries_alone() ? kEpochAlone : kEpoch;
    if (before / epoch != (before + writes) / epoch) end_epoch(now(), double(kEpoch) / epoch);
  }

 private:
  // One that took so long is not of those that matter, or had a pause in it: once more.
  static constexpr Duration kLong = std::chrono::milliseconds(200);
  static constexpr uint64_t kMostTook = 60'000'000'000;

  // `parts`: so many of them are a whole epoch.
  void end_epoch(Time now, double parts) {
    const uint64_t took = static_cast<uint64_t>(now.since_start.count()) - began_;
    if (took <= static_cast<uint64_t>(kLong.count()) || repeated_.exchange(true)) {
      repeated_ = false;
      judge(static_cast<double>(std::clamp<uint64_t>(took, 1, kMostTook)), parts);
    }
    count_ = 0;
  }

  // `part`: what a part of an epoch took.
  void judge(double part, double parts) {
    const double took = part * parts;
    const bool together = together_;
    const double epochs = static_cast<double>(++epochs_);
    if (!together) {
      took_alone_ = took;
    } else {  // the best: they have met by then
      took_together_ = settled_ || epochs == 1 ? took : std::min(took, took_together_.load());
    }
    if (settled_) {
      if (epochs_ >= rest_) begin(!together, false);
      return;
    }
    const double with_others = took_together_, alone = took_alone_;
    const double spent = spent_ + part;
    spent_ = spent;
    if (!together && with_others == 0) return begin(true, false);  // the very first
    const bool better = with_others * 17 / 16 < alone;             // clearly
    const bool hopeless = spent > (epochs + kMoreEpochs) * alone;
    if (together && !better && !hopeless && epochs < kMeetings) return;
    const double best = better ? with_others : alone;
    const double rest = kLossIn * (spent - best * epochs / parts) / best;
    rest_ = !(rest > kLeastRest) ? kLeastRest : rest < kMostRest ? int64_t(rest) : kMostRest;
    begin(better, true);
  }

  void begin(bool together, bool settled) {
    together_ = together;
    settled_ = settled;
    epochs_ = 0;
    spent_ = 0;
  }

  std::atomic<uint32_t> count_;
  std::atomic<uint64_t> began_;
  std::atomic<bool> together_, settled_, repeated_;
  std::atomic<int64_t> epochs_, rest_;              // of what is done now; when it is settled
  std::atomic<double> spent_;                       // nanoseconds, as what follows
  std::atomic<double> took_alone_, took_together_;  // a whole epoch
};

}  // namespace forebay::posix
