// HeldStore: a MemoryStore that holds every read and write until it is told to end it, and tells a
// witness what was done. A request takes effect when it is submitted or when it ends.
//
// One thread. What is held when it is destroyed fails.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "store/memory.h"

namespace forebay::order {

class HeldStore final : public Store {
 public:
  explicit HeldStore(unsigned concurrency) : concurrency_(concurrency) {}
  ~HeldStore() override {
    while (!held_.empty()) take(0).done(Error(EIO, "the store is gone"));
  }

  bool holding = false;                                // until then all goes through
  std::function<bool()> early = [] { return false; };  // does it take effect when submitted?
  std::function<void(const Request&)> applied;

  void submit(Request&& request, Completion&& done) override {
    const bool data = request.op == Op::read || request.op == Op::write;
    if (!holding || !data) return memory.submit(std::move(request), std::move(done));
    held_.push_back({std::move(request), std::move(done), {}});
    if (early()) apply(held_.back());
  }

  // Those under way, in the order in which they came.
  unsigned held() const { return static_cast<unsigned>(held_.size()); }
  void end(unsigned which) {
    Held ending = take(which);
    if (!ending.result) apply(ending);
    ending.done(std::move(*ending.result));
  }

  Result<void> admits(const Request& request) override { return memory.admits(request); }
  unsigned concurrency() const override { return concurrency_; }
  Result<Handle> root() override { return memory.root(); }

  MemoryStore memory;

 private:
  struct Held {
    Request request;
    Completion done;
    std::optional<Result<Reply>> result;
  };

  Held take(unsigned which) {
    Held taken = std::move(held_[which]);
    held_.erase(held_.begin() + which);
    return taken;
  }
  void apply(Held& held) {
    if (applied) applied(held.request);
    held.result = memory.call(std::move(held.request));
  }

  const unsigned concurrency_;
  std::vector<Held> held_;
};

}  // namespace forebay::order
