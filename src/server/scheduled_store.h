// ScheduledStore: a decorator that puts the reads and writes of an export in order, and merges
// them, before they reach its back end (paper 1, section III.B; the deciding is plan/schedule.h).
// Everything else passes straight through.
//
// Work-conserving: nothing waits for a timer. A request that is submitted from a loop waits until
// the end of the loop's turn, so that all that arrived in that turn can merge, and as long as the
// schedule gathers: while the back end is busy with its file, or with as much as it can use. Where
// a call is a round trip and merging has paid of late, it also waits while turns go on to bring
// others. By fifo, and without a loop, it is issued at once if it may. Whoever brings a batch back
// issues what may go next, or has a loop do it, not by recursion: back ends complete inline.
//
// A merged batch is one request of the back end. If it fails, each of its requests is done again
// alone and has its own result (a write that failed may be repeated: the same bytes). A request
// that is cancelled while it waits is ECANCELED when its turn comes.
//
// Requests that overlap, not both reads, must not be here at the same time: whoever submits
// reserves extents before (reserve.h). Otherwise they have no order, as in any Store.
//
// Threads: any. One lock for the plan, never held while the back end, a completion or a loop runs.
// Loops that requests come from must outlive it; the pool, from which small batches are staged,
// too.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "core/buffer_pool.h"
#include "core/histogram.h"
#include "loop/loop.h"
#include "server/server.h"
#include "store/decorator.h"

namespace forebay::server {

// What `status` shows.
struct SchedulerStatus {
  std::string policy;  // as configured: "auto"
  std::string why;     // what is used now, and why
  uint64_t requests = 0, batches = 0, bytes = 0;
  uint64_t merged = 0;   // requests that shared their batch
  uint64_t retried = 0;  // requests done again alone
  uint64_t waiting = 0, most_waiting = 0, in_service = 0;
  // [i]: batches of 2^i to 2^(i+1) - 1 requests
  std::array<uint64_t, 11> sizes{};
  // From submit to completion, in nanoseconds.
  uint64_t p50 = 0, p90 = 0, p99 = 0;
};

class ScheduledStore final : public Decorator {
 public:
  ScheduledStore(std::unique_ptr<Store> inner, const SchedulerOptions& options, BufferPool& pool);
  // What waits is issued; with what is in service, it ends as the back end's own destructor has it.
  ~ScheduledStore() override;

  struct Origin {
    Loop* loop = nullptr;  // on which submit() is called
    uint64_t client = 0;   // who is to be treated fairly
    // Of a request that is made of several (small_writes.h): who sent each, and then `client` is 0.
    // Valid during submit() only.
    std::span<const uint64_t> clients = {};
    // Its client is on this node: what the file system keeps in memory is as near to it as what we
    // would keep.
    bool near = false;
    size_t requests() const { return clients.empty() ? 1 : clients.size(); }
  };
  void submit(Request&& request, Completion&& done, Origin origin);
  void submit(Request&& request, Completion&& done) override;
  Result<Reply> call(Request request) override;

  SchedulerStatus status() const;

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace forebay::server
