// Time as an injected value: everything that waits or measures takes a Clock, so that tests and the
// simulator own it.
#pragma once

#include <chrono>
#include <cstdint>

namespace forebay {

using Duration = std::chrono::nanoseconds;

// Monotonic time since an arbitrary start.
struct Time {
  Duration since_start{0};
  auto operator<=>(const Time&) const = default;
  Time operator+(Duration d) const { return {since_start + d}; }
  Duration operator-(Time t) const { return since_start - t.since_start; }
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;  // any thread
};

class SteadyClock final : public Clock {
 public:
  Time now() const override;
};

// Time since the machine was started, also while it slept: what leases are measured with, because
// the other end's clock goes on.
Duration since_boot();

class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void advance(Duration d) { now_ = now_ + d; }

 private:
  Time now_;
};

}  // namespace forebay
