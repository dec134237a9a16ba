#include "server/lease_flight.h"

#include "server/session.h"

namespace forebay::server {

void LeaseFlight::begin() {
  const auto lease = granted();
  if (!lease) return answer(lease.error());
  session_->send_recalls(lease->recalls);
  lease_ = lease->lease;
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

Result<LeaseTable::Granted> LeaseFlight::granted() {
  if (!(request_.flags & kFlagShared)) return Error(EOPNOTSUPP, "leases are for reading only");
  // What another server relays it could not recall.
  if (!here_ || !session_->may_hold_leases()) {
    return Error(EOPNOTSUPP, "the file lives at another server, which gives no leases for it here");
  }
  if (request_.flags & kFlagReclaim) return exported().leases->renew(request_.cookie, *session_);
  Request probe;
  probe.op = Op::read;
  probe.caller = request_.caller;
  probe.handle = request_.handle;
  probe.right = request_.right;
  if (auto good = exported().store().admits(probe); !good) return std::move(good).error();
  return exported().leases->take(exported().store().identity(request_.handle), *session_);
}

}  // namespace forebay::server
