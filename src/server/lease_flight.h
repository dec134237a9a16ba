// LeaseFlight: a client takes or renews a read lease. Answered at once; no Store is asked.
#pragma once

#include "server/flight.h"

namespace forebay::server {

class LeaseFlight final : public Flight {
 public:
  LeaseFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
      : Flight(std::move(session), std::move(message)) {}

 private:
  void begin() override;
  void keep(unsigned, Result<Reply>&&) override {}
  void done(unsigned) override {}
  void fail(Error error) override { answer(std::move(error)); }

  Result<LeaseTable::Granted> granted();
};

}  // namespace forebay::server
