// LockFlight: a request about advisory locks. No Store is asked; a lock that waits keeps its slot
// until it is granted, cancelled, or its session ends (clients leave slots free: client/session.h).
// If the file lives at another server it is asked, for an owner that is none of its other clients'.
#pragma once

#include "server/flight.h"
#include "server/lock_table.h"

namespace forebay::server {

class LockFlight final : public Flight {
 public:
  LockFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
      : Flight(std::move(session), std::move(message)) {}

  bool patient() const override { return true; }

 private:
  void begin() override;
  void keep(unsigned, Result<Reply>&& result) override { result_ = std::move(result); }
  void done(unsigned) override;
  void late(unsigned) override;
  void fail(Error error) override;
  void let_go() override;

  void lock();
  void answer_granted();
  void unlock();
  void relay();
  void test();
  Result<void> admitted() const;
  std::string_view file() const;
  LockTable::Owner owner() const;
  LockTable::Lock wanted() const;

  LockTable::Ticket waits_ = 0;
  Request undo_;  // what another server was asked for
  Result<Reply> result_{std::in_place};
};

}  // namespace forebay::server
