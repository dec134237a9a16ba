#include "attr/leases.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"

namespace forebay::attr {

// A write lease is alone, but for those that it takes the place of.
bool Leases::may_take(const File& file, const Who& who, Kind kind) const {
  if (file.writer != 0) {
    const Lease& writer = leases_.at(file.writer);
    if (writer.recalled || writer.who != who) return false;
  }
  if (kind == Kind::read) return true;
  return file.recalled.empty() &&
         std::ranges::all_of(file.holders, [&](const auto& one) { return one.first == who; });
}

Result<Leases::Number> Leases::take(std::string_view file, const Who& who, Kind kind, Time now,
                                    Duration most) {
  // What ran out is not renewed: its client has dropped it, and may not have heard what changed.
  if (const auto known = clients_.find(who.client);
      known != clients_.end() && known->second.until <= now) {
    for (const Number number : std::set<Number>(known->second.leases)) {
      if (!leases_.at(number).recalled) drop(number);
    }
  }
  if (const auto known = files_.find(file); known != files_.end()) {
    if (!may_take(known->second, who, kind)) return Error(EAGAIN, "others hold leases of the file");
    const auto held = known->second.holders.find(who);
    if (held != known->second.holders.end()) drop(held->second);
  }
  Client& asks = clients_[who.client];
  if (leases_.size() >= limits_.in_all || asks.leases.size() >= limits_.per_client) {
    const Error full(ENOLCK, fmt::format("{} leases are held, {} by this client", leases_.size(),
                                         asks.leases.size()));
    if (asks.leases.empty()) clients_.erase(who.client);
    return full;
  }
  auto at = files_.find(file);
  if (at == files_.end()) at = files_.try_emplace(std::string(file)).first;
  const Number number = ++last_;
  at->second.holders.emplace(who, number);
  leases_.emplace(number, Lease{&at->first, who, kind});
  if (kind == Kind::write) {
    at->second.writer = number;
    ++writers_;
  }
  asks.leases.insert(number);
  asks.until = std::max(asks.until, now + std::min(term_, most));
  return number;
}

bool Leases::renew(uint64_t client, Number number, Time now, Duration most) {
  const auto lease = leases_.find(number);
  if (lease == leases_.end() || lease->second.who.client != client || lease->second.recalled) {
    return false;
  }
  Client& c = clients_.at(client);
  if (c.until <= now) return false;
  c.until = std::max(c.until, now + std::min(term_, most));
  return true;
}

void Leases::mark(Number number) {
  Lease& lease = leases_.at(number);
  lease.recalled = true;
  lease.until = clients_.at(lease.who.client).until;
  File& file = files_.find(*lease.file)->second;
  file.holders.erase(lease.who);
  file.recalled.insert(number);
}

// Of one that was not recalled.
void Leases::ask_for(Number number, Time now, Recalled& out) {
  const Who& who = leases_.at(number).who;
  if (clients_.at(who.client).until <= now) return drop(number);
  out.now.push_back({who.client, number});
  mark(number);
}

void Leases::wait_for(Number number, Recalled& out) const {
  out.until.push_back(number);
  out.at_most = std::max(out.at_most, leases_.at(number).until);
}

Leases::Recalled Leases::recall(std::string_view name, const Who& changer, Time now) {
  Recalled out;
  out.lapsed = lapse(name, now);
  const auto file = files_.find(name);
  if (file == files_.end()) return out;
  for (const auto& [who, number] : std::map<Who, Number>(file->second.holders)) {
    if (who != changer) ask_for(number, now, out);
  }
  const auto still = files_.find(name);
  if (still == files_.end()) return out;
  for (const Number number : still->second.recalled) {
    if (leases_.at(number).who != changer) wait_for(number, out);
  }
  return out;
}

Leases::Recalled Leases::recall_writer(std::string_view name, const Who& user, Time now) {
  Recalled out;
  out.lapsed = lapse(name, now);
  const auto file = files_.find(name);
  if (file == files_.end() || file->second.writer == 0) return out;
  const Number number = file->second.writer;
  const Lease& lease = leases_.at(number);
  if (lease.who == user) return out;
  if (!lease.recalled) ask_for(number, now, out);
  if (leases_.contains(number)) wait_for(number, out);
  return out;
}

bool Leases::held_of(std::string_view file) const {
  return files_.find(file) != files_.end();
}

bool Leases::holds(uint64_t client, Number number) const {
  const auto lease = leases_.find(number);
  return lease != leases_.end() && lease->second.who.client == client;
}

bool Leases::writes(uint64_t client, Number number, std::string_view file) const {
  if (!holds(client, number)) return false;
  const Lease& lease = leases_.at(number);
  return lease.kind == Kind::write && *lease.file == file;
}

bool Leases::written_by(std::string_view name, const Who& who) const {
  const auto file = files_.find(name);
  return file != files_.end() && file->second.writer != 0 &&
         leases_.at(file->second.writer).who == who;
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

std::vector<Leases::Number> Leases::forget_copies(uint64_t client) {
  std::vector<Number> out;
  const auto found = clients_.find(client);
  if (found == clients_.end()) return out;
  for (const Number number : std::set<Number>(found->second.leases)) {
    const Lease& lease = leases_.at(number);
    if (lease.kind == Kind::write) {
      if (!lease.recalled) mark(number);
    } else {
      out.push_back(number);
      drop(number);
    }
  }
  return out;
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
    if (lease.until <= now) out.push_back({lease.who.client, number});
  }
  for (const Held& held : out) drop(held.lease);
  return out;
}

std::vector<Leases::Held> Leases::lapse(uint64_t client, Time now) {
  std::vector<Held> out;
  const auto found = clients_.find(client);
  if (found == clients_.end()) return out;
  for (const Number number : found->second.leases) {
    const Lease& lease = leases_.at(number);
    if (lease.recalled && lease.until <= now) out.push_back({client, number});
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
    file->second.holders.erase(lease->second.who);
  }
  if (file->second.writer == number) {
    file->second.writer = 0;
    --writers_;
  }
  const auto client = clients_.find(lease->second.who.client);
  client->second.leases.erase(number);
  if (client->second.leases.empty()) clients_.erase(client);
  leases_.erase(lease);
  if (file->second.holders.empty() && file->second.recalled.empty()) files_.erase(file);
}

}  // namespace forebay::attr
