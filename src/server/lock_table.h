// LockTable: the advisory locks of one export (attr/file_locks.h), shared by sessions on different
// loops.
//
// Locks live as long as their session, which outlives a lost connection by its grace, unless its
// process is known to be gone. When a server is restarted its clients come back and reclaim what
// they held: so long new locks wait, if there may have been any. There may have been if there is a
// marker, a file that is made with the first lock and removed by an orderly end at which nobody
// holds one. A reclaim that comes later is refused: others may have had the lock and let go of it
// since.
//
// The same holds for a client that was away during a whole life of the server. So the marker names
// the lives whose locks may be reclaimed: a life adds itself with its first lock, and strikes out
// all others before it grants one that nobody reclaims. Clients say in which life a lock was
// theirs.
//
// Locks that another server asks for are its clients'. If that server is restarted they reclaim
// them through its next life, from what this one still holds for the life before, by the number of
// their owner, which is random.
//
// Where locks of one owner are at several homes, circles of those who wait are searched for by
// asking all of them (lock_search.h). Then an owner is known by the number that it has at homes
// other than that of its client, also at the latter (known_as()). What a server holds for its
// clients that has no connection counts for nothing meanwhile: its next life may not want it.
//
// Threads: any; one lock, never held while somebody else's code runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attr/file_locks.h"
#include "attr/lock_circles.h"
#include "core/callback.h"
#include "core/clock.h"
#include "loop/loop.h"

namespace forebay::server {

class LockTable {
 public:
  using Kind = attr::FileLocks::Kind;
  using Lock = attr::FileLocks::Lock;
  using Owner = attr::FileLocks::Owner;
  using Held = attr::FileLocks::Held;
  using Ticket = attr::FileLocks::Ticket;

  // `marker`: the file's name; empty: locks never survive a restart. `grace`: for reclaims, from
  // begin() on.
  LockTable(std::string marker, Duration grace);
  ~LockTable();

  // The server begins to serve, in this life. Before anything else.
  void begin(Time now, uint64_t life);
  uint64_t life() const { return life_; }

  // How long new locks still have to wait for those who reclaim theirs.
  Duration grace_left(Time now);

  // Granted: 0. Otherwise it waits, and `granted` will be posted to `loop`, unless it is given up
  // before. EAGAIN if it does not wait, ENOLCK for a reclaim that comes too late.
  struct Ask {
    std::string_view file;
    Owner owner;
    Lock lock;
    bool wait;
    std::optional<uint64_t> reclaim;  // from this life
    uint32_t pid;                     // of the client, for those who ask who is in the way
    bool relayed;                     // the client is another server
    bool elsewhere = false;           // the owner holds locks at other homes
    std::function<void()> look = {};  // posted to the loop: it is to look for circles
  };
  Result<Ticket> lock(const Ask& ask, Loop& loop, Task granted);
  // False: too late, it was granted.
  bool give_up(Ticket ticket);
  void unlock(std::string_view file, Owner owner, Kind kind, Extent range);
  void forget(uint64_t client);
  // `pid` as given by whom it belongs to.
  std::optional<Held> test(std::string_view file, Owner owner, const Lock& lock,
                           uint32_t& pid) const;

  bool knows(uint64_t client) const;  // it holds a lock, or waits for one
  bool holds(Owner owner) const;

  // ---- For circles over several homes. `place`: this server's in the list, from 1 ----
  // The owner has locks at other homes too, by this name; or no more.
  void known_as(Owner owner, uint64_t name);
  void known_no_more(Owner owner);
  // Another server, as a client, has a connection, or has lost it.
  void reaches(uint64_t client, bool connected);
  // What a lock that waits here waits for.
  std::vector<attr::WaitsFor> in_the_way(Ticket ticket, uint64_t place) const;
  // Who is in the way of these owners here: of each one in whose way it is. Those behind `after`,
  // in order, `most` at most; `all`: there are no more.
  struct Asked {
    std::span<const attr::LockOwner> owners;
    attr::LockOwner after;
    size_t most;
  };
  std::vector<attr::WaitsFor> in_the_way(const Asked& asked, uint64_t place, bool& all) const;
  bool stand(std::span<const attr::WaitsFor> edges) const;
  void look(Ticket ticket) const;
  size_t held() const;
  size_t waiting() const;

 private:
  struct Waiter {
    Loop* loop;
    Task granted;
    std::function<void()> look = {};
    uint64_t since = 0;
  };
  struct Client {  // one that has asked for locks
    uint32_t pid = 0;
    bool relayed = false;
  };
  using Waiters = std::vector<Waiter>;
  Result<Ticket> decide(const Ask& ask, Waiter waiter, Waiters& others);
  std::optional<std::vector<Ticket>> inherited(const Ask& ask);
  Waiters take(const std::vector<Ticket>& granted);
  static void tell(Waiters waiters);
  void mark();
  void read_marker();
  bool counts(Owner owner) const;
  attr::LockOwner name_of(Owner owner, uint64_t place) const;
  std::vector<Owner> owners_of(const attr::LockOwner& name, uint64_t place) const;
  attr::WaitsFor edge(const attr::FileLocks::InTheWay& one, uint64_t place) const;

  const std::string marker_;
  const Duration grace_;
  mutable std::mutex mutex_;
  uint64_t life_ = 0;
  std::vector<uint64_t> lives_;  // whose locks may be reclaimed, from the next life, too
  bool survivors_ = false;       // there may be some
  enum class Marked { no, with_others, alone } marked_ = Marked::no;
  Time grace_end_{};
  attr::FileLocks locks_;
  std::unordered_map<Ticket, Waiter> waiters_;
  std::unordered_map<uint64_t, Client> clients_;
  std::set<uint64_t> relays_;            // other servers that have a connection
  std::map<Owner, uint64_t> names_;      // by which our clients' owners are known elsewhere
  std::map<uint64_t, Owner> owners_of_;  // by that
};

}  // namespace forebay::server
