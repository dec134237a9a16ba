// Guest: a connection in the lobby: one that has not said who it is, or one for control.
// On the lobby loop. Owned by the lobby.
#pragma once

#include <memory>

#include "server/lobby.h"

namespace forebay::server {

class Lobby::Guest final : public ConnectionHandler {
 public:
  Guest(Lobby& lobby, uint64_t number, std::unique_ptr<Connection> connection);
  ~Guest() override;

  void start();
  void refuse(const Error& why);  // says so, and closes
  const Peer& peer() const { return connection_->peer(); }
  std::unique_ptr<Connection> take() { return std::move(connection_); }

 private:
  Result<Memory> on_message(const wire::FrameHeader& header, wire::Bytes message) override;
  void on_payload() override {}
  void on_closed(const Error& why) override;

  Result<Memory> on_hello(wire::Bytes message);
  Result<Memory> on_control(wire::Bytes message);
  void close_after(Duration d, Error why);

  Lobby& lobby_;
  const uint64_t number_;
  std::unique_ptr<Connection> connection_;
  enum class State { new_here, control, leaving } state_ = State::new_here;
  Loop::TimerId timer_ = 0;
};

}  // namespace forebay::server
