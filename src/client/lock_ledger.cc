#include "client/lock_ledger.h"

#include <utility>

namespace forebay {

namespace {

ExtentSet range_of(const Request& r) {
  const uint64_t from = r.offset.value;
  return {{r.offset, Length(r.length.value == 0 ? kMaxOffset - from : r.length.value)}};
}

}  // namespace

LockLedger::Key LockLedger::key_of(const Request& r) {
  return {r.handle.bytes, r.cookie, (r.flags & kFlagWhole) != 0};
}

void LockLedger::Part::take_out(const ExtentSet& range) {
  shared = subtract(shared, range);
  exclusive = subtract(exclusive, range);
}

void LockLedger::Held::take_out(const ExtentSet& range) {
  now.take_out(range);
  for (Part& claim : claims) claim.take_out(range);
  std::erase_if(claims, [](const Part& claim) { return claim.empty(); });
}

void LockLedger::granted(const Request& r, const CallerRef& caller, const Reply& reply) {
  const ExtentSet range = range_of(r);
  Held& held = files_[key_of(r)];
  held.caller = caller;
  held.right = r.right;
  held.take_out(range);
  held.now.life = reply.value;
  held.now.owner = reply.verifier;
  ExtentSet& mine = r.flags & kFlagShared ? held.now.shared : held.now.exclusive;
  mine = unite(mine, range);
}

void LockLedger::unlocked(const Request& r) {
  const auto found = files_.find(key_of(r));
  if (found == files_.end()) return;
  found->second.take_out(range_of(r));
  if (found->second.empty() && !found->second.lost) files_.erase(found);
}

std::vector<Request> LockLedger::reclaims() {
  std::vector<Request> out;
  for (auto& [key, held] : files_) {
    if (!held.now.empty()) held.claims.push_back(std::exchange(held.now, {}));
    for (const Part& claim : held.claims) add_requests(key, held, claim, out);
  }
  return out;
}

void LockLedger::add_requests(const Key& key, const Held& held, const Part& claim,
                              std::vector<Request>& to) {
  for (const bool shared : {true, false}) {
    for (const Extent& range : shared ? claim.shared : claim.exclusive) {
      Request r;
      r.op = Op::lock;
      r.caller = held.caller;
      r.handle.bytes = key.handle;
      r.right = held.right;
      r.cookie = key.owner;
      r.value = claim.life;
      r.expected = claim.owner;
      r.flags = kFlagReclaim;
      if (key.whole) r.flags |= kFlagWhole;
      if (shared) r.flags |= kFlagShared;
      if (!key.whole) r.offset = range.offset;
      if (range.end().value != kMaxOffset) r.length = range.length;
      to.push_back(std::move(r));
    }
  }
}

void LockLedger::lost(const Request& reclaim) {
  const auto found = files_.find(key_of(reclaim));
  if (found == files_.end()) return;
  found->second.lost = true;
  found->second.take_out(range_of(reclaim));
}

std::optional<Error> LockLedger::take_loss(const Request& r) {
  if (files_.empty()) return std::nullopt;
  const auto found = files_.find(key_of(r));
  if (found == files_.end() || !found->second.lost) return std::nullopt;
  found->second.lost = false;
  if (found->second.empty()) files_.erase(found);
  return Error(EIO,
               "a lock on this file was lost with its server, and could not be had again: what it "
               "protected may have changed");
}

}  // namespace forebay
