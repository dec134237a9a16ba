#include "attr/leases.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"

namespace forebay::attr {

Result<Leases::Number> Leases::take(std::string_view file, uint64_t client, Time now) {
  // What ran out is not renewed: its client has dropped it, and may not have heard what changed.
  if (const auto known = clients_.find(client);
      known != clients_.end() && known->second.until <= now) {
    for (const Number number : std::set<Number>(known->second.leases)) {
      if (!leases_.at(number).recalled) drop(number);
    }
  }
  if (const auto known = files_.find(file); known != files_.end()) {
    const auto held = known->second.holders.find(client);
    if (held != known->second.holders.end()) drop(held->second);
  }
  Client& asks = clients_[client];
  if (leases_.size() >= limits_.in_all || asks.leases.size() >= limits_.per_client) {
    const Error full(ENOLCK, fmt::format("{} leases are held, {} by this client", leases_.size(),
                                         asks.leases.size()));
    if (asks.leases.empty()) clients_.erase(client);
    return full;
  }
  auto at = files_.find(file);
  if (at == files_.end()) at = files_.try_emplace(std::string(file)).first;
  const Number number = ++last_;
  at->second.holders.emplace(client, number);
  leases_.emplace(number, Lease{&at->first, client});
  asks.leases.insert(number);
  asks.until = now + term_;
  return number;
}

bool Leases::renew(uint64_t client, Number number, Time now) {
  const auto lease = leases_.find(number);
  if (lease == leases_.end() || lease->second.client != client || lease->second.recalled) {
    return false;
  }
  Client& c = clients_.at(client);
  if (c.until <= now) return false;
  c.until = now + term_;
  return true;
}

void Leases::mark(Number number) {
  Lease& lease = leases_.at(number);
  lease.recalled = true;
  lease.until = clients_.at(lease.client).until;
  File& file = files_.find(*lease.file)->second;
  file.holders.erase(lease.client);
  file.recalled.insert(number);
}

Leases::Recalled Leases::recall(std::string_view name, uint64_t changer, Time now) {
  Recalled out;
  lapse(name, now);
  const auto file = files_.find(name);
  if (file == files_.end()) return out;
  for (const auto& [client, number] : std::map<uint64_t, Number>(file->second.holders)) {
    if (client == changer) continue;
    if (clients_.at(client).until <= now) {
      drop(number);
      continue;
    }
    out.now.push_back({client, number});
    mark(number);
  }
  const auto still = files_.find(name);
  if (still == files_.end()) return out;
  for (const Number number : still->second.recalled) {
    const Lease& lease = leases_.at(number);
    if (lease.client == changer) continue;
    out.until.push_back(number);
    out.at_most = std::max(out.at_most, lease.until);
  }
  return out;
}

bool Leases::holds(uint64_t client, Number number) const {
  const auto lease = leases_.find(number);
  return lease != leases_.end() && lease->second.client == client;
}

bool Leases::give_back(uint64_t client, Number number) {
  if (!holds(client, number)) return false;
  drop(number);
  return true;
}

std::vector<Leases::Number> Leases::forget(uint64_t client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  const std::vector<Number> all(found->second.leases.begin(), found->second.leases.end());
  for (const Number number : all) drop(number);
  return all;
}

void Leases::abandon(uint64_t client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  for (const Number number : found->second.leases) {
    if (!leases_.at(number).recalled) mark(number);
  }
}

std::vector<Leases::Held> Leases::lapse(std::string_view name, Time now) {
  std::vector<Held> out;
  const auto file = files_.find(name);
  if (file == files_.end()) return out;
  for (const Number number : file->second.recalled) {
    const Lease& lease = leases_.at(number);
    if (lease.until <= now) out.push_back({lease.client, number});
  }
  for (const Held& held : out) drop(held.lease);
  return out;
}

void Leases::drop(Number number) {
  const auto lease = leases_.find(number);
  FOREBAY_ASSERT(lease != leases_.end());
  const auto file = files_.find(*lease->second.file);
  if (lease->second.recalled) {
    file->second.recalled.erase(number);
  } else {
    file->second.holders.erase(lease->second.client);
  }
  const auto client = clients_.find(lease->second.client);
  client->second.leases.erase(number);
  if (client->second.leases.empty()) clients_.erase(client);
  leases_.erase(lease);
  if (file->second.holders.empty() && file->second.recalled.empty()) files_.erase(file);
}

}  // namespace forebay::attr
