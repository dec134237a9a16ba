#include "client/lock_ledger.h"

namespace forebay {

namespace {

Extent range_of(const Request& r) {
  const uint64_t from = r.offset.value;
  return {r.offset, Length(r.length.value == 0 ? kMaxOffset - from : r.length.value)};
}

}  // namespace

LockLedger::Key LockLedger::key_of(const Request& r) {
  return {r.handle.bytes, r.cookie, (r.flags & kFlagWhole) != 0};
}

void LockLedger::done(const Request& r, const CallerRef& caller) {
  const ExtentSet range = {range_of(r)};
  const auto found = files_.find(key_of(r));
  if (r.op == Op::unlock) {
    if (found == files_.end()) return;
    Held& held = found->second;
    held.shared = subtract(held.shared, range);
    held.exclusive = subtract(held.exclusive, range);
    if (held.shared.empty() && held.exclusive.empty() && !held.lost) files_.erase(found);
    return;
  }
  Held& held = files_[key_of(r)];
  held.caller = caller;
  held.right = r.right;
  ExtentSet& mine = r.flags & kFlagShared ? held.shared : held.exclusive;
  ExtentSet& other = r.flags & kFlagShared ? held.exclusive : held.shared;
  mine = unite(mine, range);
  other = subtract(other, range);
}

std::vector<Request> LockLedger::reclaims() const {
  std::vector<Request> out;
  for (const auto& [key, held] : files_) {
    for (const bool shared : {true, false}) {
      for (const Extent& range : shared ? held.shared : held.exclusive) {
        Request r;
        r.op = Op::lock;
        r.caller = held.caller;
        r.handle.bytes = key.handle;
        r.right = held.right;
        r.cookie = key.owner;
        r.flags = kFlagReclaim;
        if (key.whole) r.flags |= kFlagWhole;
        if (shared) r.flags |= kFlagShared;
        if (!key.whole) r.offset = range.offset;
        if (range.end().value != kMaxOffset) r.length = range.length;
        out.push_back(std::move(r));
      }
    }
  }
  return out;
}

void LockLedger::lost(const Request& reclaim) {
  const auto found = files_.find(key_of(reclaim));
  if (found == files_.end()) return;
  Held& held = found->second;
  held.lost = true;
  const ExtentSet range = {range_of(reclaim)};
  held.shared = subtract(held.shared, range);
  held.exclusive = subtract(held.exclusive, range);
}

std::optional<Error> LockLedger::take_loss(const Request& r) {
  if (files_.empty()) return std::nullopt;
  const auto found = files_.find(key_of(r));
  if (found == files_.end() || !found->second.lost) return std::nullopt;
  found->second.lost = false;
  if (found->second.shared.empty() && found->second.exclusive.empty()) files_.erase(found);
  return Error(EIO,
               "a lock on this file was lost with its server, and could not be had again: what it "
               "protected may have changed");
}

}  // namespace forebay
