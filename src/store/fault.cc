#include "store/fault.h"

#include <numeric>

namespace forebay {

FaultStore::FaultStore(std::unique_ptr<Store> inner, uint64_t seed, Scheduler after)
    : Decorator(std::move(inner)), after_(std::move(after)), random_(seed) {}

FaultStore::~FaultStore() {
  release();
  {
    std::unique_lock lock(mutex_);
    undelayed_.wait(lock, [this] { return delayed_ == 0; });
  }
  end_inner();
}

void FaultStore::add(FaultRule rule) {
  FOREBAY_ASSERT(rule.action != FaultRule::Action::delay || after_, "delay needs a scheduler");
  std::lock_guard lock(mutex_);
  rules_.push_back(rule);
}

void FaultStore::clear() {
  std::lock_guard lock(mutex_);
  rules_.clear();
  calls_.fill(0);
  fired_ = 0;
}

void FaultStore::release() {
  std::vector<Held> held;
  {
    std::lock_guard lock(mutex_);
    held.swap(held_);
  }
  for (Held& h : held) inner().submit(std::move(h.request), std::move(h.done));
}

uint64_t FaultStore::calls(Op op) const {
  std::lock_guard lock(mutex_);
  return calls_[static_cast<size_t>(op)];
}

uint64_t FaultStore::calls() const {
  std::lock_guard lock(mutex_);
  return std::accumulate(calls_.begin(), calls_.end(), uint64_t{0});
}

uint64_t FaultStore::fired() const {
  std::lock_guard lock(mutex_);
  return fired_;
}

size_t FaultStore::held() const {
  std::lock_guard lock(mutex_);
  return held_.size();
}

// Under the lock, before the call is counted.
bool FaultStore::fires(const FaultRule& rule, Op op) {
  if (rule.op && *rule.op != op) return false;
  if (!rule.nth) return std::bernoulli_distribution(rule.probability)(random_);
  const uint64_t before = rule.op ? calls_[static_cast<size_t>(op)]
                                  : std::accumulate(calls_.begin(), calls_.end(), uint64_t{0});
  return before == *rule.nth;
}

std::optional<FaultRule> FaultStore::match(Op op) {
  std::lock_guard lock(mutex_);
  std::optional<FaultRule> found;
  for (const FaultRule& rule : rules_) {
    if (!fires(rule, op)) continue;
    found = rule;
    ++fired_;
    break;
  }
  ++calls_[static_cast<size_t>(op)];
  return found;
}

void FaultStore::submit(Request&& request, Completion&& done) {
  if (const auto rule = match(request.op)) {
    act(*rule, std::move(request), std::move(done));
  } else {
    inner().submit(std::move(request), std::move(done));
  }
}

void FaultStore::act(const FaultRule& rule, Request&& request, Completion&& done) {
  switch (rule.action) {
    case FaultRule::Action::fail_before:
      return done(Error(rule.error, "injected fault"));
    case FaultRule::Action::fail_after:
      return inner().submit(std::move(request),
                            [code = rule.error, d = std::move(done)](Result<Reply>) mutable {
                              d(Error(code, "injected fault").with_unknown_outcome());
                            });
    case FaultRule::Action::short_write:
    case FaultRule::Action::short_read:
      return shorten(rule, std::move(request), std::move(done));
    case FaultRule::Action::delay:
      return delay(rule.delay, std::move(request), std::move(done));
    case FaultRule::Action::hold: {
      std::lock_guard lock(mutex_);
      held_.push_back({std::move(request), std::move(done)});
      return;
    }
  }
}

void FaultStore::shorten(const FaultRule& rule, Request&& request, Completion&& done) {
  const bool writes = rule.action == FaultRule::Action::short_write;
  const Op op = writes ? Op::write : Op::read;
  const Length total = request.file.total(), most(rule.bytes);
  if (request.op != op || total <= most || request.memory.shape.total() != total) {
    return inner().submit(std::move(request), std::move(done));
  }
  request.file = request.file.slice(Length(), most);
  request.memory = request.memory.slice(Length(), most);
  if (!writes) return inner().submit(std::move(request), std::move(done));
  inner().submit(std::move(request),
                 [code = rule.error, d = std::move(done)](Result<Reply>&& r) mutable {
                   if (!r) return d(std::move(r));
                   d(Error(code, "injected fault").with_done(r->count));
                 });
}

void FaultStore::delay(Duration by, Request&& request, Completion&& done) {
  {
    std::lock_guard lock(mutex_);
    ++delayed_;
  }
  after_(by, [this, r = std::move(request), d = std::move(done)]() mutable {
    inner().submit(std::move(r), std::move(d));
    std::lock_guard lock(mutex_);
    --delayed_;
    undelayed_.notify_all();
  });
}

}  // namespace forebay
