// AutoPolicy: which of fifo and hbrr serves the load at hand better, found by trying.
//
// It is told what came back from the Store and how much time has passed in which there was work. It
// stays with one policy, and now and then tries the other for a moment: the one that moved more
// bytes per second of work wins, and must be better by a margin to take over. A trial that changes
// nothing makes the next one rarer. What it can know without trying it does not try: large requests
// have nothing to gain from merging, and a load in which nothing touches has nothing to merge.
//
// Pure: time is what it is told. Its user locks.
#pragma once

#include <string>

#include "core/clock.h"
#include "core/types.h"
#include "plan/schedule.h"

namespace forebay::plan {

class AutoPolicy {
 public:
  Policy policy() const { return now_; }

  // A batch has come back. `busy` is the time so far in which any request was there, and never goes
  // back. Returns the policy to use from now on.
  Policy batch(uint64_t requests, uint64_t bytes, Duration busy);

  // For people: what it uses and why.
  std::string why() const;

 private:
  // What was seen under one policy, in one stretch of time.
  struct Seen {
    uint64_t batches = 0, requests = 0, bytes = 0;
    double per_batch() const { return batches ? double(requests) / double(batches) : 1; }
    double size() const { return requests ? double(bytes) / double(requests) : 0; }
  };
  struct Rate {
    double bytes_per_second = 0;  // 0: not known
    double per_batch = 1;
  };
  enum class Reason { start, nothing_merges, large, slower, faster };

  bool warm(Duration busy);
  void measured(Duration took);
  void decide();
  void switch_to(Policy policy);
  void decide_alone();
  void decide_by_trial();
  void stay(Policy policy, Reason reason, bool changed);
  Rate& rate(Policy p) { return p == Policy::fifo ? fifo_ : hbrr_; }
  const Rate& rate(Policy p) const { return p == Policy::fifo ? fifo_ : hbrr_; }

  Policy home_ = Policy::hbrr;  // what is used but for trials
  Policy now_ = Policy::hbrr;
  Reason reason_ = Reason::start;
  Seen seen_;
  Duration began_{0};      // the stretch
  Duration home_time_{0};  // since the last trial
  Duration pause_{0};      // until the next trial; 0: at once
  Rate fifo_, hbrr_;
  double size_ = 0;          // of a request, in the last stretch
  double decided_size_ = 0;  // and when it last decided
  bool switched_ = false;    // what comes back at first was issued under the other policy
};

}  // namespace forebay::plan
