// Relay: how requests of a server's own clients reach the home of their file, which may be another
// server (plan/homes.h). All servers export the same file system; what is kept about a file beside
// it (open rights, reservations, write-behind data, and sizes and times that these change) is kept
// at its home only. So:
//  - what is about one file (read, write, open, close, getattr, setattr, resize, ...) goes there,
//  but
//    directories are the same everywhere;
//  - what is about names is done here, and then asks the home for the attributes of a file that it
//    shows (lookup, readdir with attributes);
//  - what ends the name of a file, or opens one by its name (remove, rename, create), finds the
//  file
//    first, and is done at its home; a file that is not there yet is created here.
// Requests that another server relays to us are about files that live here, and never come this
// way: their session is marked (wire::Hello::relay), and both servers have the same list, or there
// is no such session. So no request is relayed twice.
//
// A right that was granted here is good at the home, and the other way round: the export's key is
// the same on all servers. It is held open at the home only, by the session that relays there.
//
// Threads: every loop has a Store of its own for each other server, used and completing on that
// loop only. submit() is called on the loop of its origin; completions run on any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "plan/homes.h"
#include "server/behind_store.h"
#include "server/relayed_leases.h"
#include "server/server.h"

namespace forebay::server {

class Relay {
 public:
  using Origin = ScheduledStore::Origin;
  struct Parts {
    std::shared_ptr<const ClusterOptions> cluster;
    std::string export_name;
    Handle root;
    BehindStore* local;  // until close()
    std::shared_ptr<LeaseTable> leases;
  };
  explicit Relay(Parts parts);
  ~Relay();
  Relay(const Relay&) = delete;
  // Waits for what is under way with other servers.
  void close();

  bool lives_here(const Handle& file) const;
  // The name of the server; empty: this one.
  std::string home_of(const Handle& file) const;
  void submit(Request&& request, Completion&& done, Origin origin);
  // At that server, wherever the file lives.
  void submit_at(const std::string& server, Request&& request, Completion&& done, Origin origin);
  // At the server of that place in the list.
  void submit_at(size_t place, Request&& request, Completion&& done, Loop& loop);
  // A client's request for a read lease of a file that lives at another server (relayed_leases.h).
  // On the loop of the client, as all about leases.
  void lease(Request&& ask, uint64_t client, Loop& loop, RelayedLeases::Taken then);
  // How long what this server has promised there, and so may promise here, is good; nothing: it
  // holds none.
  std::optional<Duration> leases_left(Loop& loop) const;
  // How many there are, and which is this one.
  size_t servers() const;
  size_t self() const;
  // As BehindStore::settle().
  void settle(Request&& request, Completion&& done, Origin origin);

  // Has another server acknowledged writes before they were in the file system? Then nobody here
  // can say that all is written.
  bool acknowledged() const;

  // What `status` shows.
  uint64_t relayed() const;
  std::string status() const;  // JSON

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace forebay::server
