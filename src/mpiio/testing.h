// Helpers of the tests of shared state.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "attr/file_locks.h"
#include "attr/values.h"
#include "core/callback.h"
#include "core/testing.h"
#include "mpiio/arbiter.h"
#include "mpiio/arbiter_client.h"
#include "mpiio/attr_state.h"
#include "mpiio/node_state.h"

namespace forebay::mpiio {

inline constexpr Slot kPointer = Slot::shared_pointer;

inline Extents range(uint64_t offset, uint64_t length) {
  return Extents(ext(offset, length));
}

inline std::unique_ptr<Arbiter> near_arbiter() {
  return Arbiter::start({.reach = Arbiter::Reach::loopback}).value();
}

// A file and as many ranks as one likes, all in this process.
struct NodeWorld {
  std::unique_ptr<NodeMemory> memory = std::make_unique<NodeMemory>();
  std::unique_ptr<SharedState> rank() { return std::make_unique<NodeState>(*memory); }
};
struct ArbiterWorld {
  std::unique_ptr<Arbiter> arbiter = near_arbiter();
  Invitation invitation = arbiter->open_file();
  std::unique_ptr<SharedState> rank() { return ArbiterClient::connect(invitation).value(); }
};

// What a server does of one file for an AttrState, and nothing else. Its clients are told apart by
// the gid of their callers.
class AttrStore final : public Store {
 public:
  void submit(Request&& r, Completion&& done) override {
    std::vector<Completion> granted;
    std::optional<Result<Reply>> answer;
    {
      std::lock_guard lock(mutex_);
      if (r.op == Op::lock || r.op == Op::unlock) {
        lock_or_unlock(r, done, granted);
      } else {
        answer = attribute(r);
      }
    }
    if (answer && !*answer && on_refusal) std::exchange(on_refusal, {})();
    if (answer) done(std::move(*answer));
    for (Completion& one : granted) one(Reply{});
  }
  Result<Handle> root() override { return Handle{"root"}; }

  attr::Values values;
  Callback<void()> on_refusal;  // once, while the next error is on its way

 private:
  void lock_or_unlock(const Request& r, Completion& done, std::vector<Completion>& granted) {
    const attr::FileLocks::Owner owner{uint64_t{r.caller->gid}, r.cookie};
    std::vector<attr::FileLocks::Ticket> next;
    if (r.op == Op::unlock) {
      next = locks_.unlock("f", owner, attr::FileLocks::Kind::range, {{}, Length(kMaxOffset)});
      granted.push_back(std::move(done));
    } else {
      const attr::FileLocks::Lock wanted{
          attr::FileLocks::Kind::range, !(r.flags & kFlagShared), {r.offset, r.length}};
      auto outcome = locks_.lock("f", owner, wanted, true).value();
      next = std::move(outcome.granted);
      if (outcome.state == attr::FileLocks::Outcome::State::waits) {
        waiting_[outcome.ticket] = std::move(done);
      } else {
        granted.push_back(std::move(done));
      }
    }
    for (const auto ticket : next) {
      granted.push_back(std::move(waiting_.at(ticket)));
      waiting_.erase(ticket);
    }
  }
  Result<Reply> attribute(const Request& r) {
    Reply reply;
    const auto told = [&](Result<uint64_t> value) -> Result<Reply> {
      if (!value) return std::move(value).error();
      reply.value = *value;
      return reply;
    };
    const auto done = [&](Result<void> good) -> Result<Reply> {
      if (!good) return std::move(good).error();
      return reply;
    };
    switch (r.op) {
      case Op::attr_create:
        return done(values.create(r.name, r.value));
      case Op::attr_remove:
        return done(values.remove(r.name));
      case Op::attr_set:
        return done(values.set(r.name, r.value));
      case Op::attr_get:
        return told(values.get(r.name));
      case Op::attr_fetch_add:
        return told(values.fetch_and_add(r.name, r.value));
      default:
        return told(values.compare_and_swap(r.name, r.expected, r.value));
    }
  }

  std::mutex mutex_;
  attr::FileLocks locks_;
  std::map<attr::FileLocks::Ticket, Completion> waiting_;
};

struct AttrWorld {
  std::unique_ptr<AttrStore> store = std::make_unique<AttrStore>();
  std::atomic<uint32_t> ranks{0};
  std::unique_ptr<AttrState> attr_rank() {
    Caller caller = *this_process_caller();
    caller.gid = ++ranks;
    const CallerRef mine = std::make_shared<const Caller>(caller);
    return std::make_unique<AttrState>(
        *store, [mine](Op op) { return Request{.op = op, .caller = mine, .handle = {"f"}}; }, 7);
  }
  std::unique_ptr<SharedState> rank() { return attr_rank(); }
};

}  // namespace forebay::mpiio
