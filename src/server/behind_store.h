// BehindStore: a decorator that acknowledges writes when their bytes are in the server's memory,
// up to an amount and an age, and writes them later, merged (write-behind; paper 1 acknowledges
// after the write). It stands between the flights and the scheduler (scheduled_store.h), because
// only the flights' reservations are above it: whoever submits holds its extents until it is
// completed, so no two requests in here overlap, except with what was acknowledged before.
//
// Off unless the export says so or the client asks for it (WriteBehindOptions, kFlagBehind,
// kFlagStable); and not for clients on this node where the file system is local, whose page cache
// does the same for less, and does not lose it with the server (unless their writes are merged with
// others', small_writes.h). Otherwise a file has dirty pieces; when they are too old, or in
// somebody's way, a round begins: all of them go out as long sorted lists, one round of a file at a
// time. When memory is short, long runs go first: clients that write in strides drift apart, and
// the neighbours of the rest are still to come from those behind. (Who is ahead waits then,
// small_writes.h.)
//
// Invariants:
//  1. Every request sees what was acknowledged before it was submitted. A read whose bytes are all
//     here is served from here; whatever else could tell (other reads and writes of these bytes,
//     sizes and times of the file, a change of its size) first waits until they are written.
//  2. What was acknowledged reaches the Store before anything that comes after it on the same
//     bytes: a round's pieces are never changed, newer ones wait for the next round.
//  3. Bytes are acknowledged only for a right that the Store has given in this life, or accepted
//     before, alone, for this file, caller and direction; and given out only for such a one. A
//     round presents one such right for all pieces of its caller.
//  4. Memory is within the budget: a write that does not fit goes to the Store at once, as if there
//     were no write-behind. Nobody waits for memory, so a back end that never answers holds up its
//     own requests only.
//  5. No acknowledged byte is lost silently. When a batch fails, each of its pieces is written
//     again alone; what fails then is an error of every client that has written to the file since
//     its last commit or close: its session takes it with take_loss() and tells it once. If such a
//     client is gone, the file's verifier changes, so that the client learns of it when it commits.
//     After a crash every verifier is another.
//
// Threads: any; one lock, never held while the Store, a completion or a loop runs. Requests are
// acknowledged early only if they come from a loop, which must outlive this.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/scheduled_store.h"
#include "server/server.h"

namespace forebay::server {

// What `status` shows.
struct BehindStatus {
  std::string when;     // as configured: "hint"
  uint64_t memory = 0;  // of the budget, now
  uint64_t limit = 0;
  uint64_t files = 0;                // with dirty bytes
  uint64_t writes = 0, bytes = 0;    // acknowledged early
  uint64_t through = 0;              // might have been, but went to the Store at once
  uint64_t rounds = 0, batches = 0;  // written later
  uint64_t retried = 0;              // pieces written again alone
  uint64_t lost_pieces = 0, lost_bytes = 0;
};

class BehindStore final : public Decorator {
 public:
  // `boot` is this life of the server.
  BehindStore(std::unique_ptr<ScheduledStore> inner, const WriteBehindOptions& options,
              uint64_t boot);
  // As a crash: what is dirty is dropped. An orderly stop calls drain() before.
  ~BehindStore() override;

  using Origin = ScheduledStore::Origin;
  void submit(Request&& request, Completion&& done, Origin origin);
  void submit(Request&& request, Completion&& done) override;
  // A close whose right others still hold: waits as a close does, and closes nothing.
  void settle(Request&& close, Completion&& done, Origin origin);

  // `done` runs when all that was acknowledged before is written or lost; on any thread.
  void drain(Task done);

  // The error that this client has not been told yet, about the file that the handle is of.
  std::optional<Error> take_loss(uint64_t client, const Handle& handle);
  // The client is gone; it may come back as another one, and must then learn what it was not told.
  void forget(uint64_t client);
  // An error that was taken for a client did not reach it.
  void untold(const Handle& handle);
  // Has everything been written, or its loss been told? What an orderly stop may promise.
  bool all_told() const;

  bool used() const;                     // has anybody asked for it?
  bool keeps(const Handle& file) const;  // some of it, just now
  // All writes, of clients on this node or of others, whatever they ask for? Always the same.
  bool keeps_all(bool near) const;
  bool has_room(uint64_t bytes) const;  // just now
  BehindStatus status() const;
  SchedulerStatus scheduler() const { return scheduled_.status(); }

 private:
  class State;
  ScheduledStore& scheduled_;  // the inner one
  const std::shared_ptr<State> state_;
};

}  // namespace forebay::server
