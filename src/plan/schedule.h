// Schedule: in which order, and merged how, the data requests of an export go to its Store (paper
// 1, section III.B). It orders descriptors; the requests themselves stay with its user.
//
// Policies:
//  - fifo: in the order of arrival, one by one.
//  - hbrr: handle-based round robin. Requests wait in a queue per handle, reads and writes apart.
//    The queues that may issue stand in line (the paper's Q); the first issues up to a quantum of
//    requests and goes to the end of the line; what it leaves of its quantum because it has no more
//    spills over to the next. Within a queue the lowest offset goes first; a batch is a run of
//    touching requests (merger.h), of whichever clients. So clients that write in strides and have
//    drifted apart come together again: those behind are served until all are at the same place.
//
// Where hbrr differs from the paper's:
//  - there is no scheduling interval: nothing waits for a timer. Requests gather while the Store is
//    busy (Gather, and the limit of batches in service).
//  - it is fair to clients as well as to handles. After kBatchesPerClientTurn batches, or a
//  quantum,
//    one client in turn has the batch around its oldest request issued. So neither a client that
//    floods one handle or many, nor the one that is always lowest, holds up
//    another: with C clients waiting, the oldest request of each goes out within
//    C * (kBatchesPerClientTurn + 1) runs of those that may be issued at all.
//  - a long run may go out in several calls at once (`part`): its batches follow each other with
//    nothing between them, and the next run of its queue may be issued when half of them are back.
//  - conflicting requests are never both here: whoever uses it reserves extents before
//    (plan/reservations.h), so every order is a legal one.
//
// Pure: no threads (its user locks), no clock, no I/O.
//
// Invariants:
//  1. Every request that is added is handed out once.
//  2. A batch holds requests of one queue, in rising order of offsets; of fifo, one request.
//  3. No more than `in_service` batches are out, and of a queue that gathers no more than Gather
//     allows.
//  4. Adding and handing out a request costs O(log n) with the tree merger.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/extent_set.h"
#include "plan/merger.h"

namespace forebay::plan {

enum class Policy : uint8_t { fifo, hbrr };

// What a queue does while a batch of its own is in service.
enum class Gather : uint8_t {
  never,   // issues what there is
  useful,  // waits for that batch if waiting has lately paid, unless a full batch has come together
  always,  // waits for that batch: the Store could not run another one anyhow
};

struct ScheduleOptions {
  unsigned quantum = 256;  // requests
  Merger::Kind merger = Merger::Kind::tree;
  unsigned in_service = 0;  // batches, of all queues together; 0: any number
  Gather reads = Gather::never;
  Gather writes = Gather::always;
  RunLimits limits = {};
  uint64_t full = 256_KiB;  // bytes waiting that are worth a run of their own
  uint64_t part = 0;        // bytes of a read that is one batch; 0: a run is one, however long
};

using QueueId = uint32_t;  // small numbers: a table is indexed by them

struct Descriptor {
  uint64_t id = 0;      // the user's
  QueueId queue = 0;    // the file, whoever may merge with whom, and the direction
  bool write = false;   // the same for all requests of a queue
  uint64_t client = 0;  // who is to be treated fairly
  Extent bounds;        // not empty
  uint64_t bytes = 0;
  uint32_t pieces = 1;  // 0: it must go alone
};

class Schedule {
 public:
  explicit Schedule(ScheduleOptions options);
  Schedule(const Schedule&) = delete;

  static constexpr unsigned kBatchesPerClientTurn = 16;

  // From now on; what waits goes out before what comes, by the policy under which it came.
  void use(Policy policy) { policy_ = policy; }
  Policy policy() const { return policy_; }

  void add(const Descriptor& d);

  struct Batch {
    QueueId queue = 0;
    uint32_t run = 0;  // that it is a part of; 0: of none
    std::vector<uint64_t> ids;
  };
  // The next batch, which is then in service; false if nothing may be issued now.
  bool next(Batch& out);
  // A batch of this queue, and of this run, has come back from the Store.
  void ended(QueueId queue, uint32_t run = 0);

  // Requests that would go out now gather lately: if others are just coming, it is better to let
  // them come first.
  bool may_gather_more() const;

  size_t pending() const { return arrived_.size() + gathered_ + cut_.rest.size(); }
  unsigned in_service() const { return in_service_; }
  bool idle(QueueId queue) const;  // nothing pending, nothing in service: the number may be reused

 private:
  using Slot = uint32_t;
  static constexpr Slot kNone = UINT32_MAX;
  // Of one client's requests, how many are looked at for one that may be issued.
  static constexpr unsigned kLook = 64;
  // Clients without requests are kept up to this many, so that one that has a single request under
  // way is not made anew for each.
  static constexpr size_t kKeptClients = 1024;

  // A request by its slot; `use` tells it from a later one in the same slot.
  struct Ref {
    Slot slot;
    uint32_t use;
  };
  struct Client {
    uint64_t id = 0;
    std::deque<Ref> requests;  // in the order of arrival; those that went out are skipped
    size_t waiting = 0;
    bool in_line = false;
  };
  struct Waiting {  // a request in a merger
    uint64_t id = 0;
    Offset offset;
    Client* client = nullptr;
    QueueId queue = 0;
    uint32_t use = 0;  // changes when it goes out
  };
  struct Queue {
    std::unique_ptr<Merger> merger;
    bool write = false;
    bool in_line = false;
    unsigned in_service = 0;
    uint32_t run = 0;      // the last one
    unsigned parts = 0;    // that it has, so far
    unsigned out = 0;      // of these, in service
    uint64_t bytes = 0;    // waiting
    uint64_t arrived = 0;  // waiting in the order of arrival
    double per_batch = 1;  // requests, of late
  };

  // What is left of a run that goes out in parts. There is one at most: it goes before all else.
  struct Cut {
    QueueId queue = 0;
    std::deque<std::pair<uint64_t, uint64_t>> rest;  // id, bytes
  };

  Queue& queue(QueueId id, bool write);
  bool may_issue(const Queue& q) const;
  bool gathers(const Queue& q) const;
  void line_up(QueueId id);
  bool oldest_first(Batch& out);
  bool from_line(Batch& out);
  bool for_client(Batch& out);
  bool waits(Ref ref) const { return waiting_[ref.slot].use == ref.use; }
  void tidy(Client& client) const;
  Slot first_that_may(const Client& client, unsigned& looks) const;
  void issue(QueueId id, Batch& out);
  void hand_out_part(Batch& out);
  Client& client(uint64_t id);
  Slot enlist(const Descriptor& d);
  void delist(Slot slot);
  void forget_if_many(Client& c);

  ScheduleOptions options_;
  Policy policy_ = Policy::hbrr;
  unsigned in_service_ = 0;
  uint32_t runs_ = 0;

  // fifo
  std::deque<std::pair<QueueId, uint64_t>> arrived_;

  // hbrr
  Cut cut_;
  std::vector<Queue> queues_;
  std::deque<QueueId> line_;
  unsigned left_ = 0;               // of the quantum
  unsigned since_client_turn_ = 0;  // batches
  size_t gathered_ = 0;
  std::vector<Waiting> waiting_;
  std::vector<Slot> free_;
  std::unordered_map<uint64_t, Client> clients_;
  std::deque<Client*> client_line_;
  std::vector<Item> run_;  // kept for its capacity
};

}  // namespace forebay::plan
