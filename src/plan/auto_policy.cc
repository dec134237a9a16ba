#include "plan/auto_policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace forebay::plan {

namespace {

using namespace std::chrono_literals;

// A stretch is judged when it has seen so much; a slow Store is judged by fewer requests.
constexpr uint64_t kEnough = 2048;
constexpr Duration kLongest = 20ms;
constexpr uint64_t kFew = 16;
constexpr uint64_t kWarm = 256;

constexpr Duration kFirstPause = 200ms;
constexpr Duration kLongestPause = 5s;

constexpr double kLarge = 512.0 * 1024;
constexpr double kMerges = 1.1;  // requests per batch: below, nothing merges
constexpr double kBetter = 1.05;

std::string rate_text(double bytes_per_second) {
  return fmt::format("{:.1f} MB/s", bytes_per_second / 1e6);
}

}  // namespace

Policy AutoPolicy::batch(uint64_t requests, uint64_t bytes, Duration busy) {
  ++seen_.batches;
  seen_.requests += requests;
  seen_.bytes += bytes;
  if (!warm(busy)) return now_;
  const Duration took = busy - began_;
  const bool enough = seen_.requests >= kEnough && took > Duration::zero();
  if (enough || (took >= kLongest && seen_.requests >= kFew)) {
    measured(took);
    decide();
    seen_ = {};
    began_ = busy;
  }
  return now_;
}

bool AutoPolicy::warm(Duration busy) {
  if (!switched_) return true;
  if (seen_.requests < kWarm && busy - began_ < kLongest / 4) return false;
  switched_ = false;
  seen_ = {};
  began_ = busy;
  return false;
}

void AutoPolicy::measured(Duration took) {
  Rate& r = rate(now_);
  r.bytes_per_second = double(seen_.bytes) / std::chrono::duration<double>(took).count();
  if (now_ == Policy::hbrr) r.per_batch = seen_.per_batch();
  size_ = seen_.size();
  if (now_ == home_) home_time_ += took;
}

void AutoPolicy::decide() {
  if (now_ == home_) {
    decide_alone();
  } else {
    decide_by_trial();
  }
}

void AutoPolicy::switch_to(Policy policy) {
  switched_ = policy != now_;
  now_ = policy;
}

// At home: is it clear what to use, or is it time for a trial?
void AutoPolicy::decide_alone() {
  if (size_ >= kLarge) {
    if (reason_ != Reason::large) stay(Policy::fifo, Reason::large, true);
    return;
  }
  if (home_ == Policy::hbrr && hbrr_.per_batch < kMerges) {
    return stay(Policy::fifo, Reason::nothing_merges, true);
  }
  // What was decided may have gone with the load that it was for.
  if (size_ > 2 * decided_size_ || 2 * size_ < decided_size_) pause_ = Duration::zero();
  if (home_time_ < pause_) return;
  switch_to(home_ == Policy::hbrr ? Policy::fifo : Policy::hbrr);
}

// The trial of the other one is over.
void AutoPolicy::decide_by_trial() {
  const Policy other = now_;
  if (other == Policy::hbrr && hbrr_.per_batch < kMerges) {
    return stay(Policy::fifo, Reason::nothing_merges, false);
  }
  const bool better = rate(other).bytes_per_second > kBetter * rate(home_).bytes_per_second;
  const Policy best = better ? other : home_;
  stay(best, best == Policy::hbrr ? Reason::faster : Reason::slower, better);
}

void AutoPolicy::stay(Policy policy, Reason reason, bool changed) {
  pause_ = changed ? Duration(kFirstPause)
                   : std::clamp<Duration>(pause_ * 2, kFirstPause, kLongestPause);
  switch_to(policy);
  home_ = policy;
  reason_ = reason;
  decided_size_ = size_;
  home_time_ = Duration::zero();
}

std::string AutoPolicy::why() const {
  switch (reason_) {
    case Reason::start:
      return "hbrr: it has not seen enough to judge";
    case Reason::nothing_merges:
      return fmt::format("fifo: nothing to merge ({:.2f} requests per batch)", hbrr_.per_batch);
    case Reason::large:
      return fmt::format("fifo: requests are large ({:.0f} KiB)", size_ / 1024);
    case Reason::slower:
      return fmt::format("fifo: faster when tried, {} against {} with hbrr",
                         rate_text(fifo_.bytes_per_second), rate_text(hbrr_.bytes_per_second));
    case Reason::faster:
      return fmt::format("hbrr: {:.1f} requests per batch, {} against {} with fifo",
                         hbrr_.per_batch, rate_text(hbrr_.bytes_per_second),
                         rate_text(fifo_.bytes_per_second));
  }
  return {};
}

}  // namespace forebay::plan
