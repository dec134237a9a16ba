#include "server/lease_flight.h"

#include "server/session.h"

namespace forebay::server {

void LeaseFlight::begin() {
  const auto lease = granted();
  if (!lease) return answer(lease.error());
  session_->send_recalls(lease->recalls);
  Reply reply;
  reply.value = lease->lease;
  reply.count = static_cast<uint64_t>(exported().leases->term() / std::chrono::milliseconds(1));
  answer(std::move(reply));
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
