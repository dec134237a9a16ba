#include "server/guest.h"

#include <fmt/format.h>

#include "core/log.h"

namespace forebay::server {
namespace {

// So that a refusal is read before the close makes the kernel throw it away.
constexpr Duration kLinger = std::chrono::milliseconds(200);

}  // namespace

Lobby::Guest::Guest(Lobby& lobby, uint64_t number, std::unique_ptr<Connection> connection)
    : lobby_(lobby), number_(number), connection_(std::move(connection)) {}

Lobby::Guest::~Guest() {
  lobby_.loop_.cancel(timer_);
}

void Lobby::Guest::start() {
  close_after(lobby_.options_->handshake, Error(ETIMEDOUT, "no hello in time"));
  connection_->start(*this);
}

void Lobby::Guest::close_after(Duration d, Error why) {
  lobby_.loop_.cancel(timer_);
  timer_ = lobby_.loop_.after(d, [this, why = std::move(why)] {
    timer_ = 0;
    connection_->close(why);
  });
}

Result<Memory> Lobby::Guest::on_message(const wire::FrameHeader& header, wire::Bytes message) {
  if (header.payload_size != 0) return Error(EPROTO, "a payload before there is a session");
  if (state_ == State::leaving) return Memory{};
  if (state_ == State::new_here && header.type == wire::FrameType::hello) return on_hello(message);
  if (state_ == State::control && header.type == wire::FrameType::control) {
    return on_control(message);
  }
  refuse(Error(EPROTO, fmt::format("a frame of type {} before hello, or not for control",
                                   static_cast<int>(header.type))));
  return Memory{};
}

Result<Memory> Lobby::Guest::on_hello(wire::Bytes message) {
  Result<wire::Hello> hello = wire::decode_hello(message);
  if (!hello) return refuse(hello.error()), Memory{};
  if (auto fine = lobby_.welcome_peer(connection_->peer(), *hello); !fine) {
    return refuse(fine.error()), Memory{};
  }
  if (hello->purpose == wire::Hello::Purpose::control) {
    state_ = State::control;
    wire::Welcome welcome;
    welcome.boot = lobby_.boot_;
    connection_->send(wire::encode(welcome));
    close_after(lobby_.options_->handshake, Error(ETIMEDOUT, "an idle control connection"));
    return Memory{};
  }
  // A connection moves only from a task of its own, outside its handler.
  state_ = State::leaving;
  lobby_.loop_.post([weak = lobby_.weak_from_this(), number = number_,
                     said = std::make_unique<wire::Hello>(std::move(*hello))] {
    if (const auto lobby = weak.lock()) lobby->leave_guests(number, std::move(*said));
  });
  return Memory{};
}

Result<Memory> Lobby::Guest::on_control(wire::Bytes message) {
  Result<wire::Control> control = wire::decode_control(message);
  if (!control) return refuse(control.error()), Memory{};
  close_after(lobby_.options_->handshake, Error(ETIMEDOUT, "an idle control connection"));
  connection_->send(
      wire::encode(wire::ControlReply{lobby_.control(connection_->peer(), control->verb)}));
  return Memory{};
}

void Lobby::Guest::refuse(const Error& why) {
  log::info("{}: refused: {}", connection_->peer().where, why.message());
  state_ = State::leaving;
  connection_->send(wire::encode_refused(why));
  close_after(kLinger, why);
}

void Lobby::Guest::on_closed(const Error& why) {
  log::debug("{}: closed: {}", connection_->peer().where, why.message());
  lobby_.guests_.erase(number_);
}

}  // namespace forebay::server
