// LeaseTable: the read leases of one export (attr/leases.h), shared by sessions on different loops.
//
// A change of a file is done first, and then, before it is answered, what other clients hold of the
// file is recalled (changed()). So it needs no reservation while it waits, and the holder may go on
// reading: what was granted before the change is recalled, what is granted later reads what is new.
// That is asked in two places, through which every change comes back: Flight::answer(), and
// Session::written() for small writes. Without a lease in the export it costs one load.
//
// A recall waits until the lease is given back, its time is over (then the client is cut off: it
// must not go on as if nothing had happened) or the client is known to be gone. Of a client whose
// connection was lost that is known only on this node, where the kernel tells it; anybody else may
// be alive and cut off, and has its time.
//
// After a restart nobody knows who held what. If there may have been leases (the life before left
// its marker, a file with their term), no change completes before they have run out.
//
// Invariants:
//  1. What a client was asked for, it hears before the answer to any lease that it takes or renews
//     later: both hand out the recalls of that client that are not sent yet.
//  2. Whoever finds any() false has done its change before the first lease was granted.
//
// Threads: any; one lock, never held while somebody else's code runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attr/leases.h"
#include "core/callback.h"
#include "loop/loop.h"

namespace forebay::server {

class Session;

class LeaseTable : public std::enable_shared_from_this<LeaseTable> {
 public:
  using Number = attr::Leases::Number;

  // `marker`: the file's name; empty: there was no life before.
  LeaseTable(std::string marker, Duration term);
  ~LeaseTable();

  // The server begins to serve. Before anything else.
  void begin(Time now);

  // May anybody hold a lease?
  bool any() const { return any_.load(std::memory_order_seq_cst); }
  Duration term() const { return leases_.term(); }

  struct Granted {
    Number lease = 0;
    std::vector<Number> recalls;  // to be sent before the answer
  };
  // On the session's loop.
  Result<Granted> take(std::string_view file, Session& session);
  Result<Granted> renew(Number lease, Session& session);
  void give_back(uint64_t client, Number lease);
  std::vector<Number> take_recalls(uint64_t client);
  // The client has none of it any more; or it may still, but cannot be told.
  void forget(uint64_t client);
  void abandon(uint64_t client);

  // A client has changed a file. True: nobody else keeps anything of it. False: `then` will be
  // posted to `loop`, on which this is called.
  bool changed(std::string_view file, uint64_t client, Loop& loop, Task then);

  size_t held() const;
  size_t waiting() const;

 private:
  using Ticket = uint64_t;
  struct Change {
    std::string file;
    std::set<Number> leases;  // that are not gone
    bool survivors;           // it waits for those of the life before
    Loop* loop;
    Task then;
    Loop::TimerId timer = 0;
  };
  struct Reach {
    Loop* loop;
    std::weak_ptr<Session> session;
    Number first;                 // taken by this connection of the client
    std::vector<Number> recalls;  // not sent yet
  };
  using Tasks = std::vector<std::pair<Loop*, Task>>;

  Granted granted(Number lease, Session& session);
  void gone(Number lease, Tasks& out);
  void timed_out(Ticket ticket);
  void update();
  void mark();
  static void run(Tasks tasks);

  const std::string marker_;
  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  attr::Leases leases_;
  Duration survivors_term_{};  // not 0: of leases of the life before
  Time survivors_end_{};
  bool marked_ = false;
  std::unordered_map<uint64_t, Reach> reach_;  // clients that have taken leases
  std::unordered_map<Ticket, Change> changes_;
  std::unordered_map<Number, std::set<Ticket>> waited_for_;
  Ticket last_ = 0;
};

}  // namespace forebay::server
