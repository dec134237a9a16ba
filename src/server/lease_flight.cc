#include "server/lease_flight.h"

#include "server/session.h"

namespace forebay::server {

void LeaseFlight::begin() {
  if (auto good = admitted(); !good) return answer(std::move(good).error());
  if (here_ || (request_.flags & kFlagReclaim) != 0) return take();
  Request ask;
  ask.op = Op::lease;
  ask.flags = kFlagShared;
  ask.caller = request_.caller;
  ask.handle = request_.handle;
  ask.right = request_.right;
  exported().relay->lease(std::move(ask), session_->id(), loop(),
                          [self = self<LeaseFlight>()](Result<void> held) {
                            if (self->answered()) return;
                            held ? self->take() : self->answer(std::move(held).error());
                          });
}

void LeaseFlight::take() {
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
  // Answers overtake each other: the client would take this one for the newer.
  if (!exported().leases->holds(session_->id(), lease_)) {
    return answer(Error(EAGAIN, "another has taken its place meanwhile"));
  }
  result_->value = lease_;
  result_->count = static_cast<uint64_t>(time_ / std::chrono::milliseconds(1));
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
  const Duration term = exported().leases->term();
  time_ = term;
  if (session_->relays())
    time_ = std::min(term, exported().relay->leases_left(loop()).value_or(term));
  // Those of another server are about to be lost.
  if (time_ < term / 8) return Error(EAGAIN, "the home of a file does not answer in time");
  if (request_.flags & kFlagReclaim) {
    return exported().leases->renew(request_.cookie, *session_, time_);
  }
  const auto kind =
      request_.flags & kFlagShared ? attr::Leases::Kind::read : attr::Leases::Kind::write;
  return exported().leases->take(leased(request_.handle), kind, *session_, time_);
}

}  // namespace forebay::server
