// LockTable: the advisory locks of one export (attr/file_locks.h), shared by sessions on different
// loops.
//
// Locks live as long as their session, which outlives a lost connection by its grace. When a server
// is restarted its clients come back and reclaim what they held: so long new locks wait, if there
// may have been any. There may have been if the life before left its marker, a file that is made
// with the first lock and removed by an orderly end at which nobody holds one. A reclaim that comes
// later is refused: others may have had the lock and let go of it since.
//
// Threads: any; one lock, never held while somebody else's code runs.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

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

  // The server begins to serve. Before anything else.
  void begin(Time now) { grace_end_ = now + grace_; }

  // How long new locks still have to wait for those who reclaim theirs.
  Duration grace_left(Time now);

  // Granted: 0. Otherwise it waits, and `granted` will be posted to `loop`, unless it is given up
  // before. EAGAIN if it does not wait, ENOLCK for a reclaim that comes too late.
  struct Ask {
    std::string_view file;
    Owner owner;
    Lock lock;
    bool wait, reclaim;
    uint32_t pid;  // of the client, for those who ask who is in the way
  };
  Result<Ticket> lock(const Ask& ask, Loop& loop, Task granted);
  // False: too late, it was granted.
  bool give_up(Ticket ticket);
  void unlock(std::string_view file, Owner owner, Kind kind, Extent range);
  void forget(uint64_t client);
  // `pid` as given by whom it belongs to.
  std::optional<Held> test(std::string_view file, Owner owner, const Lock& lock,
                           uint32_t& pid) const;

  size_t held() const;
  size_t waiting() const;

 private:
  struct Waiter {
    Loop* loop;
    Task granted;
  };
  using Waiters = std::vector<Waiter>;
  Waiters take(const std::vector<Ticket>& granted);
  static void tell(Waiters waiters);
  void mark();

  const std::string marker_;
  const Duration grace_;
  mutable std::mutex mutex_;
  bool survivors_ = false;  // there may be some
  bool marked_ = false;
  Time grace_end_{};
  attr::FileLocks locks_;
  std::unordered_map<Ticket, Waiter> waiters_;
  std::unordered_map<uint64_t, uint32_t> pids_;  // of clients that have asked for locks
};

}  // namespace forebay::server
