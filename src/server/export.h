// Export: a Store as a server serves it: with the buffers through which its bulk data moves, the
// reservations of its files and its counters.
//
// Owned jointly by the server, its sessions and every call that a Store has not answered, because
// buffers and reservations must be there to be given back. The Store itself is owned by the server
// alone (drop_store), so that it is never destroyed by one of its own completions.
//
// Threads: any, for what is reached through it.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "core/buffer_pool.h"
#include "core/counters.h"
#include "core/op.h"
#include "server/behind_store.h"
#include "server/holders.h"
#include "server/lease_table.h"
#include "server/lock_table.h"
#include "server/relay.h"
#include "server/reserve.h"
#include "server/server.h"
#include "server/shared_state.h"
#include "server/shortcuts.h"
#include "server/sieved_store.h"
#include "server/small_memory.h"
#include "server/small_writes.h"
#include "store/store.h"

namespace forebay::server {

class Export : public std::enable_shared_from_this<Export> {
 public:
  // Asks the store for its root: blocking, so before the loops run. `boot` is this life of the
  // server; `relays`: it is not alone.
  static Result<std::shared_ptr<Export>> make(ExportOptions options, std::unique_ptr<Store> store,
                                              CounterSet& counters, uint64_t boot, bool relays);

  const ExportOptions options;
  const Handle root;
  // For files that live here. A server that relays has it by half, and the other half for what it
  // relays: so those who wait for another server's memory hold none of what that one waits for, and
  // no two servers wait for each other.
  BufferPool pool;
  const std::unique_ptr<BufferPool> away;  // as large; null: it relays nothing
  BufferPool& pool_for(bool here);
  const std::shared_ptr<SmallMemory> small;
  ReservationTable reservations;
  RightHolders holders;
  LockTable locks{options.lock_marker, options.lock_grace};
  std::atomic<unsigned> lock_searches{0};  // now (lock_search.h)
  const std::shared_ptr<LeaseTable> leases;
  SmallWrites small_writes{*this};
  ShortcutTable shortcuts;

  SharedState& state() const { return *state_; }

  BehindStore& store() const {
    FOREBAY_ASSERT(store_ != nullptr);
    return *store_;
  }
  bool has_store() const { return store_ != nullptr; }  // not for long, otherwise
  // Of a server that is not alone: how requests of its clients reach the homes of their files;
  // null: all of them live here.
  std::unique_ptr<Relay> relay;
  bool lives_here(const Handle& file) const { return !relay || relay->lives_here(file); }

  void drop_store() {  // waits for its calls
    shortcuts.end_all();
    if (relay) relay->close();
    leases->close();
    small_writes.close();
    state_->close();
    prepared_.reset();
    store_.reset();
  }

  // Do small writes gather on their way to the Store? Not if it has threads of its own, or somebody
  // else who puts them in order.
  bool gathers_writes() const { return gathers_writes_; }

  // Is this a write that is to be sieved, so that it must have its holes for itself?
  bool wants_holes(const Request& request) const {
    return sieves(options.sieve, store(), pool, request);
  }

  // What `status` shows.
  std::array<Counter*, kOpCount> ops;
  Counter& errors;
  Counter& bytes_in;
  Counter& bytes_out;
  Counter& flights;  // now
  SieveCounters sieved;

  Export(ExportOptions options, Handle root, std::unique_ptr<Store> store,
         std::shared_ptr<SharedState> state, CounterSet& counters, uint64_t boot, bool relays);

 private:
  const std::shared_ptr<SharedState> state_;
  std::unique_ptr<BehindStore> store_;
  std::shared_ptr<const void> prepared_;  // the pool, for the store
  const bool gathers_writes_;
};

}  // namespace forebay::server
