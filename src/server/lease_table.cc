#include "server/lease_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "core/log.h"
#include "server/session.h"

namespace forebay::server {

namespace {

attr::Leases::Who user_of(const LeaseTable::File& file, uint64_t client) {
  return {client, std::hash<std::string>()(file.handle.bytes)};
}

}  // namespace

// Numbers are far from those of any other life.
LeaseTable::LeaseTable(std::string marker, Duration term, uint64_t boot)
    : marker_(std::move(marker)), leases_(term, boot << 32) {
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

// Their timers, and passages that are posted, find nothing any more.
void LeaseTable::close() {
  decltype(changes_) changes;
  decltype(gates_) gates;
  std::lock_guard lock(mutex_);
  changes.swap(changes_);
  waited_for_.clear();
  gates.swap(gates_);
  gates_of_.clear();
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
  writers_.store(leases_.held_to_write() != 0 || !gates_.empty(), std::memory_order_seq_cst);
}

// With the mutex held.
LeaseTable::Granted LeaseTable::granted(Number lease, Session& session) {
  Reach& reach = reach_.try_emplace(session.id(), Reach{nullptr, {}, lease, {}}).first->second;
  reach.loop = &session.loop();
  reach.session = session.weak_from_this();
  return {lease, std::exchange(reach.recalls, {})};
}

Result<LeaseTable::Granted> LeaseTable::take(const File& file, attr::Leases::Kind kind,
                                             Session& session, Duration most) {
  std::lock_guard lock(mutex_);
  const bool write = kind == attr::Leases::Kind::write;
  // Those who waited have not been there yet.
  if (write && gates_.contains(std::string(file.identity))) {
    return Error(EAGAIN, "others wait for the file");
  }
  if (lent_.contains(file.identity)) return Error(EAGAIN, "a client works on the file itself");
  mark();
  const auto lease =
      leases_.take(file.identity, user_of(file, session.id()), kind, session.loop().now(), most);
  update();
  if (!lease) return lease.error();
  return granted(*lease, session);
}

bool LeaseTable::lend(std::string_view file) {
  std::lock_guard lock(mutex_);
  if (survivors_term_ != Duration::zero() || leases_.held_of(file) ||
      gates_.contains(std::string(file))) {
    return false;
  }
  lent_.emplace(file);
  return true;
}

void LeaseTable::returned(std::string_view file) {
  std::lock_guard lock(mutex_);
  if (const auto found = lent_.find(file); found != lent_.end()) lent_.erase(found);
}

Result<LeaseTable::Granted> LeaseTable::renew(Number lease, Session& session, Duration most) {
  std::lock_guard lock(mutex_);
  if (!leases_.renew(session.id(), lease, session.loop().now(), most)) {
    return Error(ENOLCK, "the lease is not held any more");
  }
  return granted(lease, session);
}

bool LeaseTable::holds(uint64_t client, Number lease) const {
  std::lock_guard lock(mutex_);
  return leases_.holds(client, lease);
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

void LeaseTable::lose(uint64_t client, Left how, Loop& loop) {
  Tasks tasks;
  {
    std::lock_guard lock(mutex_);
    if (how == Left::for_good) {
      for (const Number lease : leases_.forget(client)) gone(lease, tasks);
    } else if (how == Left::without_copies) {
      for (const Number lease : leases_.forget_copies(client)) gone(lease, tasks);
    } else {
      leases_.abandon(client);
    }
    const bool known = reach_.erase(client) != 0;
    update();
    // Perhaps nobody ever asks for what it held.
    if (known && how != Left::for_good && leases_.held() != 0) {
      loop.after(leases_.term(), [weak = weak_from_this(), client, &loop] {
        if (const auto self = weak.lock()) self->prune(client, loop.now());
      });
    }
  }
  run(std::move(tasks));
}

void LeaseTable::prune(uint64_t client, Time now) {
  Tasks tasks;
  {
    std::lock_guard lock(mutex_);
    lapsed(leases_.lapse(client, now), tasks);
    update();
  }
  run(std::move(tasks));
}

bool LeaseTable::writes(uint64_t client, Number lease, std::string_view file) const {
  std::lock_guard lock(mutex_);
  return leases_.writes(client, lease, file);
}

// ---- Recalls. What takes `out` runs with the mutex held ----

void LeaseTable::tell(const std::vector<attr::Leases::Held>& recalled, Tasks& out) {
  for (const auto& held : recalled) {
    const auto reach = reach_.find(held.client);
    if (reach == reach_.end()) continue;
    reach->second.recalls.push_back(held.lease);
    out.emplace_back(reach->second.loop, [weak = reach->second.session] {
      if (const auto session = weak.lock()) session->send_recalls();
    });
  }
}

void LeaseTable::gone(Number lease, Tasks& out) {
  if (const auto gate = gates_of_.find(lease); gate != gates_of_.end()) {
    const std::string file = std::move(gate->second);
    gates_of_.erase(gate);
    open_gate(file, out);
  }
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

// Their holders had their time.
void LeaseTable::lapsed(const std::vector<attr::Leases::Held>& leases, Tasks& out) {
  for (const auto& held : leases) {
    gone(held.lease, out);
    const auto reach = reach_.find(held.client);
    if (reach == reach_.end() || held.lease < reach->second.first) continue;
    out.emplace_back(reach->second.loop, [weak = reach->second.session] {
      if (const auto session = weak.lock()) session->cut_off_holder();
    });
  }
}

bool LeaseTable::changed(const File& file, uint64_t client, Loop& loop, Task then) {
  Tasks tasks;
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    const Time now = loop.now();
    if (survivors_term_ != Duration::zero() && now >= survivors_end_) {
      survivors_term_ = Duration::zero();
    }
    const attr::Leases::Recalled recalled =
        leases_.recall(file.identity, user_of(file, client), now);
    lapsed(recalled.lapsed, tasks);
    update();
    const bool survivors = survivors_term_ != Duration::zero();
    waits = !recalled.until.empty() || survivors;
    if (waits) {
      tell(recalled.now, tasks);
      const Ticket ticket = ++last_;
      const Time end = survivors ? std::max(survivors_end_, recalled.at_most) : recalled.at_most;
      Change& change = changes_[ticket];
      change = {std::string(file.identity), {}, survivors, &loop, std::move(then)};
      for (const Number lease : recalled.until) {
        change.leases.insert(lease);
        waited_for_[lease].insert(ticket);
      }
      change.timer =
          loop.after(end - now, [self = shared_from_this(), ticket] { self->timed_out(ticket); });
    }
  }
  run(std::move(tasks));
  return !waits;
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
    lapsed(leases_.lapse(file, now), tasks);
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

// ---- Gates ----

bool LeaseTable::conflicts(const File& file, uint64_t client, Loop& loop, Task then) {
  Tasks tasks;
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    const attr::Leases::Who user = user_of(file, client);
    const std::string name(file.identity);
    const Time now = loop.now();
    if (!gates_.contains(name)) {
      const auto recalled = leases_.recall_writer(name, user, now);
      lapsed(recalled.lapsed, tasks);
      if (!recalled.until.empty()) {
        tell(recalled.now, tasks);
        Gate& gate = gates_[name];
        gate.writer = recalled.until.front();
        gates_of_[gate.writer] = name;
        gate.loop = &loop;
        gate.timer =
            loop.after(recalled.at_most - now, [self = shared_from_this(), name, at = &loop] {
              self->gate_timed_out(name, at->now());
            });
      }
    }
    const auto gate = gates_.find(name);
    waits = gate != gates_.end() && !leases_.written_by(name, user);
    if (waits) {
      ++gate->second.inside;
      gate->second.waiting.emplace_back(&loop, std::move(then));
      if (gate->second.open) tasks.emplace_back(&loop, passage(name, &loop));
    }
    update();
  }
  run(std::move(tasks));
  return !waits;
}

void LeaseTable::open_gate(const std::string& file, Tasks& out) {
  Gate& gate = gates_.at(file);
  gate.open = true;
  out.emplace_back(gate.loop, [loop = gate.loop, timer = gate.timer] { loop->cancel(timer); });
  for (const auto& [loop, then] : gate.waiting) out.emplace_back(loop, passage(file, loop));
}

Task LeaseTable::passage(const std::string& file, Loop* loop) {
  return [self = shared_from_this(), file, loop] { self->pass(file, loop); };
}

// Lets the first through of those on this loop. (Whose passage this is does not matter: those that
// are posted by several threads come in any order.)
void LeaseTable::pass(const std::string& file, Loop* loop) {
  Task then;
  {
    std::lock_guard lock(mutex_);
    const auto gate = gates_.find(file);
    if (gate == gates_.end()) return;  // the server has ended
    auto& waiting = gate->second.waiting;
    const auto first =
        std::ranges::find_if(waiting, [&](const auto& one) { return one.first == loop; });
    then = std::move(first->second);
    waiting.erase(first);
  }
  then();
  std::lock_guard lock(mutex_);
  const auto gate = gates_.find(file);
  if (gate != gates_.end() && --gate->second.inside == 0) gates_.erase(gate);
  update();
}

void LeaseTable::gate_timed_out(const std::string& file, Time now) {
  Tasks tasks;
  {
    std::lock_guard lock(mutex_);
    lapsed(leases_.lapse(file, now), tasks);
    update();
  }
  run(std::move(tasks));
}

void LeaseTable::run(Tasks tasks) {
  for (auto& [loop, task] : tasks) loop->post(std::move(task));
}

bool LeaseTable::held_of(std::string_view file) const {
  std::lock_guard lock(mutex_);
  return leases_.held_of(file);
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
