#include "attr/range_locks.h"

#include <fmt/format.h>

#include <algorithm>

namespace forebay::attr {

Result<bool> RangeLocks::lock(Ticket ticket, LockMode mode, Extents ranges) {
  const auto owner = owners_.find(ticket.owner);
  const size_t has = owner == owners_.end() ? 0 : owner->second.size();
  if (has != 0 && owner->second.contains(ticket.id)) {
    return Error(EEXIST, fmt::format("lock {} is held or waited for already", ticket.id));
  }
  if (has >= limits_.per_owner || tickets_.size() >= limits_.in_all) {
    return Error(ENOLCK, fmt::format("{} locks of this client, {} in all; at most {} and {}", has,
                                     tickets_.size(), limits_.per_owner, limits_.in_all));
  }
  const Id id = ++last_;
  owners_[ticket.owner].emplace(ticket.id, id);
  tickets_.emplace(id, ticket);
  using Mode = plan::Reservations::Mode;
  return reservations_.add(id, mode == LockMode::shared ? Mode::read : Mode::write,
                           std::move(ranges));
}

Result<std::vector<RangeLocks::Ticket>> RangeLocks::unlock(Ticket ticket) {
  const auto owner = owners_.find(ticket.owner);
  if (owner == owners_.end()) return Error(ENOENT, "this client has no locks");
  const auto found = owner->second.find(ticket.id);
  if (found == owner->second.end()) {
    return Error(ENOENT, fmt::format("this client has no lock {}", ticket.id));
  }
  const Id id = found->second;
  owner->second.erase(found);
  if (owner->second.empty()) owners_.erase(owner);
  std::vector<Ticket> granted;
  release(id, granted);
  return granted;
}

std::vector<RangeLocks::Ticket> RangeLocks::forget(Owner owner) {
  std::vector<Ticket> granted;
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return granted;
  const auto ids = std::move(found->second);
  owners_.erase(found);
  // What one of its locks had kept its other ones from is granted on the way, and goes next.
  for (const auto& [_, id] : ids) release(id, granted);
  std::erase_if(granted, [&](const Ticket& t) { return t.owner == owner; });
  return granted;
}

void RangeLocks::release(Id id, std::vector<Ticket>& granted) {
  tickets_.erase(id);
  for (const Id now : reservations_.release(id)) granted.push_back(tickets_.at(now));
}

bool RangeLocks::held(Ticket ticket) const {
  const auto owner = owners_.find(ticket.owner);
  if (owner == owners_.end()) return false;
  const auto found = owner->second.find(ticket.id);
  return found != owner->second.end() && reservations_.running(found->second);
}

}  // namespace forebay::attr
