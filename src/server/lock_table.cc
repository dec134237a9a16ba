#include "server/lock_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/log.h"

namespace forebay::server {

namespace {

constexpr size_t kMostLives = 64;  // of a server that ends again and again within its grace

}  // namespace

LockTable::LockTable(std::string marker, Duration grace)
    : marker_(std::move(marker)), grace_(grace) {
  read_marker();
  if (survivors_) {
    log::info("locks were held when the server ended: new ones wait {} s for their owners",
              grace_ / std::chrono::seconds(1));
  }
}

LockTable::~LockTable() {
  if (!marker_.empty() && locks_.held() == 0 && !survivors_) ::unlink(marker_.c_str());
}

void LockTable::begin(Time now, uint64_t life) {
  grace_end_ = now + grace_;
  life_ = life;
}

Duration LockTable::grace_left(Time now) {
  std::lock_guard lock(mutex_);
  if (survivors_ && now >= grace_end_) survivors_ = false;
  return survivors_ ? grace_end_ - now : Duration::zero();
}

void LockTable::read_marker() {
  if (marker_.empty()) return;
  std::ifstream in(marker_);
  for (uint64_t life = 0; in >> std::hex >> life;) lives_.push_back(life);
  survivors_ = !lives_.empty();
}

// With the mutex held, before a lock is granted: the marker says what the next life has to know.
void LockTable::mark() {
  const Marked wanted = survivors_ ? Marked::with_others : Marked::alone;
  if (marked_ == wanted || marked_ == Marked::alone || marker_.empty()) return;
  marked_ = wanted;
  if (!survivors_) lives_.clear();
  if (std::ranges::find(lives_, life_) == lives_.end()) lives_.push_back(life_);
  if (lives_.size() > kMostLives) lives_.erase(lives_.begin());
  const std::string path = marker_ + ".new";
  std::ofstream out(path, std::ios::trunc);
  for (const uint64_t life : lives_) out << fmt::format("{:016x}\n", life);
  out.close();
  if (out && ::rename(path.c_str(), marker_.c_str()) == 0) return;
  log::warn("cannot make {}: locks will not survive a restart", marker_);
  ::unlink(marker_.c_str());  // what it said is not true any more
}

// With the mutex held. What an earlier life of the other server had, for the same owner.
std::optional<std::vector<LockTable::Ticket>> LockTable::inherited(const Ask& ask) {
  if (!ask.relayed) return std::nullopt;
  for (const auto& [id, client] : clients_) {
    if (!client.relayed || id == ask.owner.client) continue;
    auto granted = locks_.inherit(ask.file, {id, ask.owner.name}, ask.owner, ask.lock);
    if (granted) return granted;
  }
  return std::nullopt;
}

Result<LockTable::Ticket> LockTable::lock(const Ask& ask, Loop& loop, Task granted) {
  Waiters others;
  Result<Ticket> result = Ticket(0);
  {
    std::lock_guard lock(mutex_);
    const auto since = static_cast<uint64_t>(loop.now().since_start.count());
    result = decide(ask, {&loop, std::move(granted), ask.look, since}, others);
  }
  tell(std::move(others));
  return result;
}

// With the mutex held. `others`: who goes on by the same step.
Result<LockTable::Ticket> LockTable::decide(const Ask& ask, Waiter waiter, Waiters& others) {
  if (ask.reclaim) {
    if (const auto granted = inherited(ask)) {
      clients_[ask.owner.client] = {ask.pid, ask.relayed};
      others = take(*granted);
      return Ticket(0);
    }
    if (!survivors_ || std::ranges::find(lives_, *ask.reclaim) == lives_.end()) {
      return Error(ENOLCK, "the lock was lost: its owner came back too late to reclaim it");
    }
  }
  clients_[ask.owner.client] = {ask.pid, ask.relayed};
  auto outcome =
      locks_.lock(ask.file, ask.owner, ask.lock, ask.wait && !ask.reclaim, ask.elsewhere);
  if (!outcome) return std::move(outcome).error();
  using State = attr::FileLocks::Outcome::State;
  others = take(outcome->granted);
  if (outcome->state == State::refused) return Error(EAGAIN, "another's lock is in the way");
  mark();
  if (outcome->state == State::granted) return Ticket(0);
  waiters_.emplace(outcome->ticket, std::move(waiter));
  return outcome->ticket;
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
    clients_.erase(client);
    relays_.erase(client);
    for (auto at = names_.lower_bound({client, 0}); at != names_.end(); at = names_.erase(at)) {
      if (at->first.client != client) break;
      owners_of_.erase(at->second);
    }
  }
  tell(std::move(others));
}

std::optional<LockTable::Held> LockTable::test(std::string_view file, Owner owner, const Lock& lock,
                                               uint32_t& pid) const {
  std::lock_guard guard(mutex_);
  auto held = locks_.test(file, owner, lock);
  if (held) pid = clients_.at(held->owner.client).pid;
  return held;
}

bool LockTable::knows(uint64_t client) const {
  std::lock_guard lock(mutex_);
  return locks_.knows(client);
}

size_t LockTable::held() const {
  std::lock_guard lock(mutex_);
  return locks_.held();
}

size_t LockTable::waiting() const {
  std::lock_guard lock(mutex_);
  return locks_.waiting();
}

bool LockTable::holds(Owner owner) const {
  std::lock_guard lock(mutex_);
  return locks_.holds(owner);
}

// ---- For circles over several homes ----

void LockTable::known_as(Owner owner, uint64_t name) {
  std::lock_guard lock(mutex_);
  if (names_.contains(owner) || !owners_of_.emplace(name, owner).second) return;
  names_.emplace(owner, name);
}

void LockTable::known_no_more(Owner owner) {
  std::lock_guard lock(mutex_);
  const auto found = names_.find(owner);
  if (found == names_.end()) return;
  owners_of_.erase(found->second);
  names_.erase(found);
}

void LockTable::reaches(uint64_t client, bool connected) {
  std::lock_guard lock(mutex_);
  connected ? void(relays_.insert(client)) : void(relays_.erase(client));
}

// What follows is with the mutex held.
bool LockTable::counts(Owner owner) const {
  return !clients_.at(owner.client).relayed || relays_.contains(owner.client);
}

attr::LockOwner LockTable::name_of(Owner owner, uint64_t place) const {
  if (clients_.at(owner.client).relayed) return {0, 0, owner.name};
  const auto known = names_.find(owner);
  if (known != names_.end()) return {0, 0, known->second};
  return {place, owner.client, owner.name};
}

std::vector<LockTable::Owner> LockTable::owners_of(const attr::LockOwner& name,
                                                   uint64_t place) const {
  std::vector<Owner> owners;
  if (name.place == place) owners.push_back({name.client, name.name});
  if (name.place != 0) return owners;
  if (const auto own = owners_of_.find(name.name); own != owners_of_.end()) {
    owners.push_back(own->second);
  }
  for (const uint64_t relay : relays_) owners.push_back({relay, name.name});
  return owners;
}

attr::WaitsFor LockTable::edge(const attr::FileLocks::InTheWay& one, uint64_t place) const {
  return {
      name_of(one.waiter, place),   name_of(one.holder, place), place, life_, one.ticket, one.held,
      waiters_.at(one.ticket).since};
}

std::vector<attr::WaitsFor> LockTable::in_the_way(Ticket ticket, uint64_t place) const {
  std::lock_guard lock(mutex_);
  std::vector<attr::WaitsFor> edges;
  locks_.in_the_way(ticket, [&](const attr::FileLocks::InTheWay& one) {
    if (counts(one.waiter) && counts(one.holder)) edges.push_back(edge(one, place));
  });
  return edges;
}

// Of several in whose way one is, one is enough to reach it; and of the rest the lowest are kept.
std::vector<attr::WaitsFor> LockTable::in_the_way(const Asked& asked, uint64_t place,
                                                  bool& all) const {
  std::lock_guard lock(mutex_);
  std::map<attr::LockOwner, attr::WaitsFor> by_holder;
  all = true;
  const auto look_at = [&](const attr::FileLocks::InTheWay& one) {
    if (!counts(one.waiter) || !counts(one.holder)) return;
    const attr::LockOwner holder = name_of(one.holder, place);
    if (holder <= asked.after) return;
    by_holder.try_emplace(holder, edge(one, place));
    if (by_holder.size() <= asked.most) return;
    by_holder.erase(std::prev(by_holder.end()));
    all = false;
  };
  for (const attr::LockOwner& name : asked.owners) {
    for (const Owner owner : owners_of(name, place)) locks_.in_the_way(owner, look_at);
  }
  std::vector<attr::WaitsFor> edges;
  for (const auto& [holder, one] : by_holder) edges.push_back(one);
  return edges;
}

bool LockTable::stand(std::span<const attr::WaitsFor> edges) const {
  std::lock_guard lock(mutex_);
  return std::ranges::all_of(edges, [&](const attr::WaitsFor& e) {
    bool found = false;
    if (e.life != life_) return false;
    locks_.in_the_way(e.ticket, [&](const attr::FileLocks::InTheWay& one) {
      found = found || (one.held == e.held && counts(one.waiter) && counts(one.holder));
    });
    return found;
  });
}

void LockTable::look(Ticket ticket) const {
  std::lock_guard lock(mutex_);
  const auto found = waiters_.find(ticket);
  if (found != waiters_.end() && found->second.look) found->second.loop->post(found->second.look);
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
