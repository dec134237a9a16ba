// LockWaitsFlight: another server's question about locks that wait here (lock_search.h).
#pragma once

#include "server/flight.h"

namespace forebay::server {

class LockWaitsFlight final : public Flight {
 public:
  LockWaitsFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
      : Flight(std::move(session), std::move(message)) {}

 private:
  void begin() override;
  void keep(unsigned, Result<Reply>&&) override {}
  void done(unsigned) override {}
  void fail(Error error) override { answer(std::move(error)); }

  Result<Reply> in_the_way() const;
  Result<Reply> about_edges() const;
};

}  // namespace forebay::server
