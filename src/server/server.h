// Server: serves exports (each one Store) to clients over connections (paper 1, sections II and
// III).
//
// Threads: the lobby loop accepts, shakes hands and answers control requests ("status"), and never
// calls a Store; each session then lives on one of the worker loops, for good. A Store may complete
// on any thread; results are handed back to the session's loop.
//
// A write's life: session (frame, decode, check) -> flight (one request under way: list,
// reservation, buffers, pulls, Store, reply) -> Store. Reservations of an export are shared by its
// sessions (reserve.h).
//
// Invariants:
//  1. Every request is applied once: a slot remembers its last reply; a repeated request gets it
//     again.
//  2. A session outlives its connection by `grace`, unless its client's process is known to be gone
//     (on this node); flights keep reservations and buffers meanwhile. A client that resumes fences
//     its old connection first.
//  3. A data flight takes a first buffer in its turn, and further ones only if nobody waits; with
//     one in hand it waits for its client and the Store only, so every buffer comes back.
//  4. A client that owes us pulled data, or does not take what we send, is cut off after `stall`.
//  5. A request that makes no progress for `deadline` (plus `stall` and `grace` while it waits for
//     its turn) is answered ETIMEDOUT; its buffers and reservation stay held until the Store's call
//     really ends.
//  6. The server never stops reading a socket: credits bound what a client may send.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/counters.h"
#include "core/types.h"
#include "loop/loop.h"
#include "store/store.h"
#include "transport/transport.h"

namespace forebay {

// How reads and writes reach the Store (server/scheduled_store.h).
struct SchedulerOptions {
  enum class Policy : uint8_t { automatic, fifo, hbrr };
  Policy policy = Policy::automatic;
  unsigned quantum = 256;    // hbrr: requests of one file before it is another's turn
  bool brute_force = false;  // the merger: brute force instead of a tree
};

// Of writes that a client may ask to be done in another way, write by write.
enum class When : uint8_t { never, asked, always };

// Scattered reads and writes that become larger ones where it is cheaper (server/sieved_store.h).
struct SieveOptions {
  bool reads = true;
  When writes = When::never;  // always: nobody else writes to the files
  // What a call of the Store costs, in bytes that it reads meanwhile; 0: by its kind. For tests.
  uint64_t call = 0;
};

// What of a bulk request may happen at once (server/bulk.h).
enum class Pipeline : uint8_t {
  none,      // all of it, or as much as there are buffers for, is transferred before it is stored
  serial,    // one chunk after the other is stored, while others are transferred
  parallel,  // chunks are transferred and stored independently of each other
};

// Writes that are acknowledged before they are in the Store (server/behind_store.h).
struct WriteBehindOptions {
  When when = When::asked;
  uint64_t memory = 32_MiB;  // of what is acknowledged and not written, at most; beside the pool
  Duration age = std::chrono::seconds(1);  // after which it is written
};

// What clients share about files: attributes and places of appends (server/shared_state.h).
struct StateOptions {
  std::string folder;  // of the journal in which it is kept; empty: it ends with the server
  bool sync = false;   // on the disk before it is answered
  uint64_t compact_at = 8_MiB;
  // Is the journal of this number the one that belongs to the export? `made`: it was not there.
  std::function<Result<void>(uint64_t id, bool made)> vouch = {};
};

struct ExportOptions {
  std::string name;
  std::string what;         // for people: "posix /scratch"
  uint64_t pool = 64_MiB;   // buffers for bulk data
  uint64_t chunk = 1_MiB;   // one buffer, one data frame, one call of the Store
  uint64_t small = 16_MiB;  // beside it: for small reads and short lists, until the pool takes them
  unsigned in_flight = 4;   // chunks of one request under way at most, unless the pipeline is none
  Pipeline pipeline = Pipeline::parallel;
  SchedulerOptions scheduler = {};
  SieveOptions sieve = {};
  WriteBehindOptions write_behind = {};
  // Advisory locks (server/lock_table.h): a file that says, after a restart, that there may be some
  // to reclaim, and for how long that may be done.
  std::string lock_marker = {};
  Duration lock_grace = std::chrono::seconds(30);
  // Leases (server/lease_table.h): the same kind of file, and how long a change waits at most
  // for whoever has copies.
  std::string lease_marker = {};
  Duration lease_time = std::chrono::seconds(5);
  StateOptions state = {};
  // May clients on this node work on files themselves, where they are alone with them
  // (server/shortcuts.h)?
  bool shortcuts = true;
};

// The servers that serve the same exports together (server/relay.h): each file has one of them as
// its home.
struct ClusterOptions {
  std::string self;                  // this server's name
  std::vector<std::string> servers;  // the names of all, this one's too
  // The export at another server, by its place in the list, as a Store for requests of this one's
  // clients, used and completing on that loop only. It connects when it is used.
  std::function<Result<std::unique_ptr<Store>>(size_t server, const std::string& export_name,
                                               const Handle& root, Loop& loop)>
      reach;
};

struct ServerOptions {
  std::string name = "forebayd";
  uint64_t boot = 0;                 // this life of the server; 0: random
  uint16_t slots = 64;               // requests in flight of one session
  unsigned sessions = 4096;          // at most
  unsigned sessions_per_user = 0;    // at most, if several users are served; 0: no limit
  uint64_t eager_total = 16_MiB;     // all sessions together
  uint32_t eager_shares = 256;       // a session gets this part of what is left
  uint32_t eager_session = 256_KiB;  // of one session
  uint32_t eager_max = 32_KiB;       // of one request
  Duration handshake = std::chrono::seconds(10);
  Duration grace = std::chrono::seconds(30);
  Duration stall = std::chrono::seconds(30);
  Duration deadline = std::chrono::seconds(60);
  bool only_this_user = true;                          // run by a user: refuse other peers at hello
  std::shared_ptr<const ClusterOptions> cluster = {};  // null: it is alone
};

class Server {
 public:
  // `workers` must not be empty and may hold the lobby itself (simulated, tests).
  Server(ServerOptions options, Loop& lobby, std::vector<Loop*> workers, CounterSet& counters);
  ~Server();  // after stop() only, or in a simulated crash: drops everything at once

  // Before the first accept.
  Result<void> add_export(ExportOptions options, std::unique_ptr<Store> store);

  // On the lobby loop: takes a connection from a listener.
  void accept(std::unique_ptr<Connection> connection);

  // Stops orderly, on the lobby loop: refuses new sessions, finishes the flights under way (at most
  // `most` long), says goodbye and closes. `done` runs on the lobby loop.
  void stop(Duration most, Callback<void()> done);

  // Runs when a control request asks the server to stop; set before the first accept.
  void on_stop_request(Callback<void()> callback);

  // A JSON object: name, pid, uptime, exports with counters, sessions by host, user, program and
  // job. On the lobby loop.
  std::string status() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace forebay
