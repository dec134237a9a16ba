#include "server/lease_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/log.h"
#include "server/session.h"

namespace forebay::server {

LeaseTable::LeaseTable(std::string marker, Duration term)
    : marker_(std::move(marker)), leases_(term) {
  if (marker_.empty() || ::access(marker_.c_str(), F_OK) != 0) return;
  int64_t theirs = 0;
  std::ifstream(marker_) >> theirs;
  survivors_term_ = std::max<Duration>(term, std::chrono::milliseconds(theirs));
  marked_ = any_ = true;
  log::info("leases were held when the server ended: changes wait until they are over, {} ms",
            survivors_term_ / std::chrono::milliseconds(1));
}

LeaseTable::~LeaseTable() {
  if (marked_ && leases_.held() == 0 && survivors_term_ == Duration::zero()) {
    ::unlink(marker_.c_str());
  }
}

void LeaseTable::begin(Time now) {
  survivors_end_ = now + survivors_term_;
}

// With the mutex held.
void LeaseTable::mark() {
  if (marked_ || marker_.empty()) return;
  std::ofstream file(marker_, std::ios::trunc);
  file << leases_.term() / std::chrono::milliseconds(1) << '\n';
  file.flush();
  if (!file) log::warn("cannot make {}: a restart may leave old copies in use", marker_);
  marked_ = true;
}

// With the mutex held, after every step.
void LeaseTable::update() {
  any_.store(leases_.held() != 0 || survivors_term_ != Duration::zero(), std::memory_order_seq_cst);
}

// With the mutex held.
LeaseTable::Granted LeaseTable::granted(Number lease, Session& session) {
  Reach& reach = reach_.try_emplace(session.id(), Reach{nullptr, {}, lease, {}}).first->second;
  reach.loop = &session.loop();
  reach.session = session.weak_from_this();
  return {lease, std::exchange(reach.recalls, {})};
}

Result<LeaseTable::Granted> LeaseTable::take(std::string_view file, Session& session) {
  std::lock_guard lock(mutex_);
  mark();
  const auto lease = leases_.take(file, session.id(), session.loop().now());
  update();
  if (!lease) return lease.error();
  return granted(*lease, session);
}

Result<LeaseTable::Granted> LeaseTable::renew(Number lease, Session& session) {
  std::lock_guard lock(mutex_);
  if (!leases_.renew(session.id(), lease, session.loop().now())) {
    return Error(ENOLCK, "the lease is not held any more");
  }
  return granted(lease, session);
}

std::vector<LeaseTable::Number> LeaseTable::take_recalls(uint64_t client) {
  std::lock_guard lock(mutex_);
  const auto found = reach_.find(client);
  if (found == reach_.end()) return {};
  return std::exchange(found->second.recalls, {});
}

void LeaseTable::give_back(uint64_t client, Number lease) {
  Tasks tasks;
  {
    std::lock_guard lock(mutex_);
    if (leases_.give_back(client, lease)) gone(lease, tasks);
    update();
  }
  run(std::move(tasks));
}

void LeaseTable::forget(uint64_t client) {
  Tasks tasks;
  {
    std::lock_guard lock(mutex_);
    for (const Number lease : leases_.forget(client)) gone(lease, tasks);
    reach_.erase(client);
    update();
  }
  run(std::move(tasks));
}

void LeaseTable::abandon(uint64_t client) {
  std::lock_guard lock(mutex_);
  leases_.abandon(client);
  reach_.erase(client);
}

// With the mutex held.
void LeaseTable::gone(Number lease, Tasks& out) {
  const auto waited = waited_for_.find(lease);
  if (waited == waited_for_.end()) return;
  for (const Ticket ticket : waited->second) {
    const auto found = changes_.find(ticket);
    Change& change = found->second;
    change.leases.erase(lease);
    if (!change.leases.empty() || change.survivors) continue;
    out.emplace_back(change.loop, [then = std::move(change.then), loop = change.loop,
                                   timer = change.timer]() mutable {
      loop->cancel(timer);
      then();
    });
    changes_.erase(found);
  }
  waited_for_.erase(waited);
}

bool LeaseTable::changed(std::string_view file, uint64_t client, Loop& loop, Task then) {
  Tasks tasks;
  {
    std::lock_guard lock(mutex_);
    const Time now = loop.now();
    if (survivors_term_ != Duration::zero() && now >= survivors_end_) {
      survivors_term_ = Duration::zero();
    }
    attr::Leases::Recalled recalled = leases_.recall(file, client, now);
    update();
    const bool survivors = survivors_term_ != Duration::zero();
    if (recalled.until.empty() && !survivors) return true;
    for (const auto& held : recalled.now) {
      const auto reach = reach_.find(held.client);
      if (reach == reach_.end()) continue;
      reach->second.recalls.push_back(held.lease);
      tasks.emplace_back(reach->second.loop, [weak = reach->second.session] {
        if (const auto session = weak.lock()) session->send_recalls();
      });
    }
    const Ticket ticket = ++last_;
    const Time end = survivors ? std::max(survivors_end_, recalled.at_most) : recalled.at_most;
    Change& change = changes_[ticket];
    change = {std::string(file), {}, survivors, &loop, std::move(then)};
    for (const Number lease : recalled.until) {
      change.leases.insert(lease);
      waited_for_[lease].insert(ticket);
    }
    change.timer =
        loop.after(end - now, [self = shared_from_this(), ticket] { self->timed_out(ticket); });
  }
  run(std::move(tasks));
  return false;
}

// On the change's loop.
void LeaseTable::timed_out(Ticket ticket) {
  Tasks tasks;
  {
    std::lock_guard lock(mutex_);
    const auto found = changes_.find(ticket);
    if (found == changes_.end()) return;
    Change& change = found->second;
    const std::string file = change.file;
    const Time now = change.loop->now();
    change.survivors = false;
    for (const auto& held : leases_.lapse(file, now)) {
      gone(held.lease, tasks);
      const auto reach = reach_.find(held.client);
      if (reach == reach_.end() || held.lease < reach->second.first) continue;
      tasks.emplace_back(reach->second.loop, [weak = reach->second.session] {
        if (const auto session = weak.lock()) session->cut_off_holder();
      });
    }
    // It may have waited for the survivors alone.
    if (const auto still = changes_.find(ticket); still != changes_.end()) {
      FOREBAY_ASSERT(still->second.leases.empty(), "a lease outlived its time");
      tasks.emplace_back(still->second.loop, std::move(still->second.then));
      changes_.erase(still);
    }
    update();
  }
  run(std::move(tasks));
}

void LeaseTable::run(Tasks tasks) {
  for (auto& [loop, task] : tasks) loop->post(std::move(task));
}

size_t LeaseTable::held() const {
  std::lock_guard lock(mutex_);
  return leases_.held();
}

size_t LeaseTable::waiting() const {
  std::lock_guard lock(mutex_);
  return changes_.size();
}

}  // namespace forebay::server
