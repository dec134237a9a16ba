// SievedStore: a decorator that serves scattered reads and writes by fewer and larger ones where
// that is cheaper (data sieving; the deciding is plan/sieve.h). Everything else passes straight
// through. It stands between the scheduler, whose merged reads have holes too, and the back end.
//
// Windows, and the stretches between them, are done one after the other, in the order of the
// stream, each window in a buffer of the export's pool:
//  - Reads: the bytes that were asked for are copied out of the window, and what else it holds is
//    dropped; so a sieved read needs no more of the file for itself than a plain one. The first
//    step that is short has met the end of file, and the count is that of a plain read. Where a
//    call is a round trip, those that are under way at the same time share their windows
//    (shared_reads.h).
//  - Writes: the window is read, the bytes to be written are put into it, and it is written back.
//    Only for requests whose submitter keeps all others from the holes (Request::owns_holes), in
//    exports that are told that nobody else writes to them, or if the client says so of this
//    write (kFlagSieve), and then whatever the holes cost. Only within the file: a window that
//    reaches beyond its end is written piece by piece, so nothing makes a file longer but what was
//    asked for.
//
// Never worse than the plain request in what it says: if a step fails (a bad block in a hole that
// nobody asked for, a right that does not allow reading, no space for the hole of a sparse file),
// the whole request is done again as it came, and its result counts. If no buffer is free, it is
// done as it came at once: nobody waits for a buffer here, as whoever submits may hold one.
//
// What a reservation does not see: a file that somebody cuts by opening it (create with truncate)
// while a sieved write is under way may keep bytes of the write's holes.
//
// Threads: any. The pool must outlive it.
#pragma once

#include <memory>

#include "core/buffer_pool.h"
#include "core/counters.h"
#include "server/server.h"
#include "store/decorator.h"

namespace forebay::server {

struct SieveCounters {
  Counter& reads;  // requests that were sieved
  Counter& writes;
  Counter& windows;  // what they became
  Counter& bytes;    // of these windows
};

// Is it a write that a SievedStore over such a Store will sieve, if it owns its holes?
bool sieves(const SieveOptions& options, Store& store, const BufferPool& pool,
            const Request& request);

class SievedStore final : public Decorator {
 public:
  SievedStore(std::unique_ptr<Store> inner, const SieveOptions& options, BufferPool& pool,
              SieveCounters counters);
  // Requests under way end as the back end's own destructor has it; what they had still to do
  // fails.
  ~SievedStore() override;

  void submit(Request&& request, Completion&& done) override;
  Result<Reply> call(Request request) override;
  bool gathers(const Request& request) const override;

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace forebay::server
