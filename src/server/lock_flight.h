// LockFlight: a request about advisory locks. No Store is asked; a lock that waits keeps its slot
// until it is granted, cancelled, or its session ends (clients leave slots free: client/session.h).
// If the file lives at another server it is asked, for an owner that is none of its other clients'.
//
// At the file's home, a lock that waits and is one of several servers' looks from time to time
// whether it can ever be granted (lock_search.h).
#pragma once

#include "server/flight.h"
#include "server/lock_search.h"
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
  bool holds_elsewhere() const;
  void watch();
  void look_later();
  void look();
  void looked(bool refuse);
  void answer_granted();
  void unlock();
  void relay();
  void ended(bool done);
  void test();
  Result<void> admitted() const;
  std::string_view file() const;
  LockTable::Owner owner() const;
  LockTable::Lock wanted() const;

  LockTable::Ticket waits_ = 0;
  std::shared_ptr<LockSearch> search_;
  Duration pause_{};  // until the next
  Loop::TimerId look_timer_ = 0;
  Request undo_;  // what another server was asked for
  Result<Reply> result_{std::in_place};
};

}  // namespace forebay::server
