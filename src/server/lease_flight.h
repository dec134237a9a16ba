// LeaseFlight: a client takes or renews a lease. The answer to a new one brings the attributes that
// the file has under it. If the file lives at another server, that is asked for one first
// (relayed_leases.h); the attributes are asked for when the client has its own.
//
// Leases end with the connection: one that was granted on an earlier connection of the session is
// not told on the next.
#pragma once

#include "server/flight.h"

namespace forebay::server {

class LeaseFlight final : public Flight {
 public:
  LeaseFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
      : Flight(std::move(session), std::move(message)) {}

 private:
  void begin() override;
  void keep(unsigned, Result<Reply>&& result) override { result_ = std::move(result); }
  void done(unsigned) override;
  void late(unsigned) override;
  void fail(Error error) override;

  void take();
  Result<LeaseTable::Granted> granted();
  Result<void> admitted() const;

  LeaseTable::Number lease_ = 0;
  Duration time_{};  // that it is good for
  uint64_t attachment_ = 0;
  Result<Reply> result_{std::in_place};
};

}  // namespace forebay::server
