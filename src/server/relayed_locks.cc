#include "server/relayed_locks.h"

#include <fmt/format.h>
#include <sys/random.h>

namespace forebay::server {

namespace {

uint64_t random_owner() {
  uint64_t number = 0;
  while (number == 0) {
    if (::getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  }
  return number;
}

ExtentSet range_of(const Request& r) {
  const uint64_t length = r.length.value == 0 ? kMaxOffset - r.offset.value : r.length.value;
  return {{r.offset, Length(length)}};
}

}  // namespace

Result<uint64_t> RelayedLocks::owner_of(const Request& r) {
  const auto known = owners_.find(r.cookie);
  if (r.op != Op::lock) return known != owners_.end() ? known->second.there : random_owner();
  if (files_.size() >= kMostFiles) {
    return Error(ENOLCK, fmt::format("this client has locked {} files that live at other servers",
                                     files_.size()));
  }
  const bool again = (r.flags & kFlagReclaim) != 0 && r.expected != 0;
  if (again) {
    const auto file = files_.find({r.handle.bytes, r.expected});
    if (file != files_.end() && file->second.cookie != r.cookie) {
      return Error(EINVAL, "another owner's lock is reclaimed");
    }
  }
  Owner& owner = owners_[r.cookie];
  if (owner.there == 0) {
    owner.there = again ? r.expected : random_owner();
  }
  const auto [file, made] = files_.try_emplace({r.handle.bytes, owner.there});
  owner.files += made;
  file->second.caller = r.caller;
  file->second.cookie = r.cookie;
  ++file->second.asked;
  return owner.there;
}

std::optional<uint64_t> RelayedLocks::ended(const Request& r, bool done) {
  const auto found = files_.find({r.handle.bytes, r.cookie});
  if (found == files_.end()) return std::nullopt;
  File& file = found->second;
  const bool had = file.holds();
  ExtentSet& held = (r.flags & kFlagWhole) != 0 ? file.whole : file.range;
  if (r.op == Op::lock) {
    --file.asked;
    if (done) held = unite(held, range_of(r));
  } else if (done) {
    held = subtract(held, range_of(r));
  }
  const bool holds = file.holds();
  const bool gone = file.asked == 0 && !holds;
  const uint64_t own = file.cookie;
  if (gone) files_.erase(found);
  const auto owner = owners_.find(own);
  if (owner == owners_.end()) return std::nullopt;  // two were reclaimed by one number
  owner->second.held += holds;
  owner->second.held -= had;
  if (!gone || --owner->second.files != 0) return std::nullopt;
  owners_.erase(owner);
  return own;
}

bool RelayedLocks::holds(uint64_t owner) const {
  const auto found = owners_.find(owner);
  return found != owners_.end() && found->second.held != 0;
}

std::vector<Request> RelayedLocks::take_unlocks() {
  std::vector<Request> all;
  for (const auto& [key, file] : std::exchange(files_, {})) {
    for (const uint32_t kind : {uint32_t(0), uint32_t(kFlagWhole)}) {
      Request unlock;
      unlock.op = Op::unlock;
      unlock.flags = kind;
      unlock.caller = file.caller;
      unlock.handle.bytes = key.first;
      unlock.cookie = key.second;
      all.push_back(std::move(unlock));
    }
  }
  owners_.clear();
  return all;
}

}  // namespace forebay::server
