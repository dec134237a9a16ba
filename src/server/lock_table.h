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
// Threads: any; one lock, never held while somebody else's code runs.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attr/file_locks.h"
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
  size_t held() const;
  size_t waiting() const;

 private:
  struct Waiter {
    Loop* loop;
    Task granted;
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
};

}  // namespace forebay::server
