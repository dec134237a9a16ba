// ShortcutFlight: a client asks for a shortcut to a file (shortcuts.h).
#pragma once

#include "server/flight.h"

namespace forebay::server {

class ShortcutFlight final : public Flight {
 public:
  ShortcutFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message)
      : Flight(std::move(session), std::move(message)) {}

 private:
  void begin() override;
  void keep(unsigned, Result<Reply>&&) override {}
  void done(unsigned) override {}
  void fail(Error error) override { answer(std::move(error)); }
};

}  // namespace forebay::server
