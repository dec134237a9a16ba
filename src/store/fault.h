// FaultStore: a decorator that makes the store under it fail on purpose.
//
// The fault model, which everything above a Store must survive:
//  - any call fails with any errno, before it has done anything (fail_before);
//  - any call does its work and then reports an error, its outcome unknown (fail_after);
//  - a write stops early: its first bytes landed, the error says how many (short_write);
//  - a call takes long (delay), or is not answered until somebody releases it (hold).
// Outside the model, because no store may do it: a read that is short before the end of file. It is
// here (short_read) to test that those above notice. Stored bytes are never changed: that is the
// business of a store with checksums.
//
// Faults are placed (call k of a kind: run an operation with k = 0, 1, 2 ... until no rule fires)
// or drawn (a probability, from a seed). Any thread; a rule that is drawn depends on the order of
// the calls, so it repeats only where that order does.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "core/clock.h"
#include "store/decorator.h"

namespace forebay {

struct FaultRule {
  enum class Action { fail_before, fail_after, short_write, short_read, delay, hold };

  std::optional<Op> op = {};         // nothing: any operation
  std::optional<uint64_t> nth = {};  // the nth call that `op` matches, from 0
  double probability = 1;            // of each matching call, where nth is not given
  Action action = Action::fail_before;
  int error = EIO;     // of fail_before, fail_after, short_write
  uint64_t bytes = 0;  // how much a shortened read or write moves; a smaller one is left alone
  Duration delay{0};
};

class FaultStore final : public Decorator {
 public:
  // Runs a task after a while, on any thread. Needed for delay only. What it holds must have run
  // before the FaultStore goes.
  using Scheduler = std::function<void(Duration, Task)>;

  explicit FaultStore(std::unique_ptr<Store> inner, uint64_t seed = 1, Scheduler after = nullptr);
  // Releases what is held, and waits for what is delayed.
  ~FaultStore() override;

  void submit(Request&& request, Completion&& done) override;
  // Nobody goes past it.
  Result<LocalFile> local_file(const Request& request) override {
    return Store::local_file(request);
  }

  void add(FaultRule rule);  // the first rule that fires counts
  void clear();              // the rules; counters go back to 0, what is held stays held
  void release();            // submits what is held, on this thread

  uint64_t calls(Op op) const;
  uint64_t calls() const;  // of all operations
  uint64_t fired() const;  // calls that met a rule
  size_t held() const;

 private:
  struct Held {
    Request request;
    Completion done;
  };
  std::optional<FaultRule> match(Op op);
  bool fires(const FaultRule& rule, Op op);
  void act(const FaultRule& rule, Request&& request, Completion&& done);
  void shorten(const FaultRule& rule, Request&& request, Completion&& done);
  void delay(Duration by, Request&& request, Completion&& done);

  const Scheduler after_;
  mutable std::mutex mutex_;
  std::condition_variable undelayed_;
  std::mt19937_64 random_;
  std::vector<FaultRule> rules_;
  std::array<uint64_t, kOpCount> calls_{};
  uint64_t fired_ = 0;
  uint64_t delayed_ = 0;
  std::vector<Held> held_;
};

}  // namespace forebay
