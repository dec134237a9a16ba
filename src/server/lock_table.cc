#include "server/lock_table.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/log.h"

namespace forebay::server {

LockTable::LockTable(std::string marker, Duration grace)
    : marker_(std::move(marker)), grace_(grace) {
  survivors_ = marked_ = !marker_.empty() && ::access(marker_.c_str(), F_OK) == 0;
  if (survivors_) {
    log::info("locks were held when the server ended: new ones wait {} s for their owners",
              grace_ / std::chrono::seconds(1));
  }
}

LockTable::~LockTable() {
  if (marked_ && locks_.held() == 0 && !survivors_) ::unlink(marker_.c_str());
}

Duration LockTable::grace_left(Time now) {
  std::lock_guard lock(mutex_);
  if (survivors_ && now >= grace_end_) survivors_ = false;
  return survivors_ ? grace_end_ - now : Duration::zero();
}

// With the mutex held.
void LockTable::mark() {
  if (marked_ || marker_.empty()) return;
  const int fd = ::open(marker_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  if (fd < 0) log::warn("cannot make {}: locks will not survive a restart", marker_);
  marked_ = true;
}

Result<LockTable::Ticket> LockTable::lock(const Ask& ask, Loop& loop, Task granted) {
  Waiters others;
  Result<Ticket> result = Ticket(0);
  {
    std::lock_guard lock(mutex_);
    if (ask.reclaim && !survivors_) {
      return Error(ENOLCK, "the lock was lost: its owner came back too late to reclaim it");
    }
    pids_[ask.owner.client] = ask.pid;
    auto outcome = locks_.lock(ask.file, ask.owner, ask.lock, ask.wait && !ask.reclaim);
    if (!outcome) return std::move(outcome).error();
    using State = attr::FileLocks::Outcome::State;
    if (outcome->state == State::granted) mark();
    if (outcome->state == State::refused) result = Error(EAGAIN, "another's lock is in the way");
    if (outcome->state == State::waits) {
      result = outcome->ticket;
      waiters_.emplace(outcome->ticket, Waiter{&loop, std::move(granted)});
    }
    others = take(outcome->granted);
  }
  tell(std::move(others));
  return result;
}

bool LockTable::give_up(Ticket ticket) {
  Waiters others;
  Task dropped;  // outside the lock: it may own the last reference to a flight
  {
    std::lock_guard lock(mutex_);
    const auto found = waiters_.find(ticket);
    if (found == waiters_.end()) return false;
    dropped = std::move(found->second.granted);
    waiters_.erase(found);
    others = take(locks_.give_up(ticket));
  }
  tell(std::move(others));
  return true;
}

void LockTable::unlock(std::string_view file, Owner owner, Kind kind, Extent range) {
  Waiters others;
  {
    std::lock_guard lock(mutex_);
    others = take(locks_.unlock(file, owner, kind, range));
  }
  tell(std::move(others));
}

void LockTable::forget(uint64_t client) {
  Waiters others;
  {
    std::lock_guard lock(mutex_);
    others = take(locks_.forget(client));
    pids_.erase(client);
  }
  tell(std::move(others));
}

std::optional<LockTable::Held> LockTable::test(std::string_view file, Owner owner, const Lock& lock,
                                               uint32_t& pid) const {
  std::lock_guard guard(mutex_);
  auto held = locks_.test(file, owner, lock);
  if (held) pid = pids_.at(held->owner.client);
  return held;
}

size_t LockTable::held() const {
  std::lock_guard lock(mutex_);
  return locks_.held();
}

size_t LockTable::waiting() const {
  std::lock_guard lock(mutex_);
  return locks_.waiting();
}

// With the mutex held.
LockTable::Waiters LockTable::take(const std::vector<Ticket>& granted) {
  Waiters out;
  for (const Ticket ticket : granted) {
    const auto found = waiters_.find(ticket);
    out.push_back(std::move(found->second));
    waiters_.erase(found);
  }
  return out;
}

void LockTable::tell(Waiters waiters) {
  for (Waiter& waiter : waiters) waiter.loop->post(std::move(waiter.granted));
}

}  // namespace forebay::server
