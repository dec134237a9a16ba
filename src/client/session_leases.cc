// Leases of a session (docs/wire-format.md, "Leases").
#include <algorithm>

#include "client/flight.h"
#include "core/log.h"

namespace forebay {

// The clocks of two machines do not run alike: an eighth of the time is left to them.
void Session::note_lease(const Flight& flight, const Result<Reply>& result) {
  if (!result) return;
  const Request& r = flight.message.request;
  const bool early = recalled_early_.erase(result->value) != 0;
  // What was not renewed in time the server has forgotten: the new time is not for that.
  if (since_boot() >= leases_until_.load()) lose_leases();
  if (!(r.flags & kFlagReclaim)) {
    // A file's new lease takes the place of the one before.
    std::erase_if(leases_, [&](const auto& one) { return one.second.handle == r.handle; });
    if (early) {
      if (holder_) return holder_->recalled(result->value);
      return give_back(result->value);
    }
    leases_[result->value] = {r.handle, r.right, flight.caller};
  }
  lease_term_ = std::chrono::milliseconds(result->count);
  leases_until_ = std::max(leases_until_.load(), flight.asked + lease_term_ * 7 / 8);
  renew_later();
}

void Session::give_back(uint64_t lease) {
  leases_.erase(lease);
  if (link_.up()) link_.send(wire::encode(wire::Released{lease}));
}

Result<void> Session::on_recall(std::span<const std::byte> message) {
  const Result<wire::Recall> recall = wire::decode_recall(message);
  if (!recall) return recall.error();
  if (leases_.erase(recall->lease) == 0) {  // given back meanwhile, or not heard of yet
    if (lease_asks_ != 0) recalled_early_.insert(recall->lease);
    return {};
  }
  if (holder_) {
    holder_->recalled(recall->lease);
  } else {
    give_back(recall->lease);
  }
  return {};
}

void Session::lose_leases() {
  leases_until_ = Duration::zero();
  const auto lost = std::exchange(leases_, {});
  if (lost.empty()) return;
  if (holder_) return holder_->lost();
  for (const auto& [lease, held] : lost) give_back(lease);
}

void Session::renew_later() {
  if (leases_.empty() || std::exchange(renewal_due_, true)) return;
  loop_.after(lease_term_ / 4, [weak = std::weak_ptr<Session*>(alive_)] {
    const auto session = weak.lock();
    if (!session) return;
    (*session)->renewal_due_ = false;
    (*session)->renew();
  });
}

void Session::renew() {
  if (leases_.empty()) return;
  if (since_boot() >= leases_until_.load()) {
    log::warn("leases have run out before they could be renewed");
    return lose_leases();
  }
  const auto& [lease, held] = *leases_.begin();
  Request r;
  r.op = Op::lease;
  r.flags = kFlagShared | kFlagReclaim;
  r.caller = held.caller;
  r.handle = held.handle;
  r.right = held.right;
  r.cookie = lease;
  // It may have been recalled, and that was heard; or the server says so now.
  auto done = [weak = std::weak_ptr<Session*>(alive_), lease = lease](Result<Reply>&& renewed) {
    const auto session = weak.lock();
    if (!session || renewed || renewed.error().code() != ENOLCK) return;
    Session& self = **session;
    if (self.leases_.erase(lease) != 0 && self.holder_) self.holder_->recalled(lease);
  };
  submit(std::move(r), std::move(done), false);
  renew_later();
}

}  // namespace forebay
