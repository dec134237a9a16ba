// LeaseFlight: a client takes or renews a read lease. The answer to a new one brings the attributes
// that the file has under it.
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

  Result<LeaseTable::Granted> granted();

  LeaseTable::Number lease_ = 0;
  Result<Reply> result_{std::in_place};
};

}  // namespace forebay::server
