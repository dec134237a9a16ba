#include "server/lease_flight.h"

#include "server/session.h"

namespace forebay::server {

void LeaseFlight::begin() {
  const auto lease = granted();
  if (!lease) return answer(lease.error());
  session_->send_recalls(lease->recalls);
  lease_ = lease->lease;
  attachment_ = session_->attachment();
  if (request_.flags & kFlagReclaim) return done(0);
  Request attributes;
  attributes.op = Op::getattr;
  attributes.caller = request_.caller;
  attributes.handle = request_.handle;
  submit(std::move(attributes), 0);
}

void LeaseFlight::done(unsigned) {
  if (!result_) exported().leases->give_back(session_->id(), lease_);
  if (!result_) return answer(result_);
  if (session_->attachment() != attachment_ || !session_->connected()) {
    exported().leases->give_back(session_->id(), lease_);
    return answer(Error(ENOLCK, "the connection was lost meanwhile"));
  }
  result_->value = lease_;
  result_->count = static_cast<uint64_t>(exported().leases->term() / std::chrono::milliseconds(1));
  answer(result_);
}

// Nobody has heard of it.
void LeaseFlight::late(unsigned) {
  exported().leases->give_back(session_->id(), lease_);
}

void LeaseFlight::fail(Error error) {
  if (busy() == 0) answer(std::move(error));
}

Result<void> LeaseFlight::admitted() const {
  // What another server relays it could not recall.
  if (!here_ || !session_->may_hold_leases()) {
    return Error(EOPNOTSUPP, "the file lives at another server, which gives no leases for it here");
  }
  const bool write = !(request_.flags & kFlagShared);
  // Names are looked up, and attributes asked for, at all servers.
  if (write && exported().relay)
    return Error(EOPNOTSUPP, "one of several servers: read leases only");
  if (request_.flags & kFlagReclaim) return {};
  Request probe;
  probe.caller = request_.caller;
  probe.handle = request_.handle;
  probe.right = request_.right;
  probe.op = write ? Op::write : Op::read;
  return exported().store().admits(probe);
}

Result<LeaseTable::Granted> LeaseFlight::granted() {
  if (auto good = admitted(); !good) return std::move(good).error();
  if (request_.flags & kFlagReclaim) return exported().leases->renew(request_.cookie, *session_);
  const auto kind =
      request_.flags & kFlagShared ? attr::Leases::Kind::read : attr::Leases::Kind::write;
  return exported().leases->take(leased(request_.handle), kind, *session_);
}

}  // namespace forebay::server
