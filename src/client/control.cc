// control(): one question to a server, outside of any session.
#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "client/remote_store.h"
#include "wire/codec.h"

namespace forebay {

namespace {

class ControlCall final : private ConnectionHandler {
 public:
  ControlCall(Loop& loop, std::string_view verb) : loop_(loop), verb_(verb) {}

  Result<std::string> run(Transport& transport, const Address& address, Duration timeout) {
    const Time end = loop_.now() + timeout;
    transport.connect(address, loop_, timeout,
                      [alive = std::weak_ptr<ControlCall*>(alive_)](auto c) {
                        if (const auto self = alive.lock()) (*self)->connected(std::move(c));
                      });
    while (!answer_ && loop_.now() < end) {
      const Time before = loop_.now();
      if (!loop_.run_one(end - before) && loop_.now() == before) break;  // simulated: all is still
    }
    if (!answer_) {
      return Error(ETIMEDOUT,
                   fmt::format("server at {} did not answer '{}' within {:g} s", address.text(),
                               verb_, std::chrono::duration<double>(timeout).count()));
    }
    if (*answer_) return std::move(*answer_);
    const Error& why = answer_->error();
    if (!why.what().starts_with(address.text()))
      return Error(why).at(fmt::format("server at {}", address.text()));
    // A transport's error begins with the address.
    return Error(why.code(), "cannot reach the server at " + why.what());
  }

 private:
  void connected(Result<std::unique_ptr<Connection>> connection) {
    if (!connection) return finish(std::move(connection).error());
    connection_ = std::move(connection).value();
    connection_->start(*this);
    wire::Hello hello;
    hello.purpose = wire::Hello::Purpose::control;
    hello.program = "control";
    hello.pid = static_cast<uint32_t>(::getpid());
    connection_->send(wire::encode(hello));
  }

  Result<Memory> on_message(const wire::FrameHeader& header,
                            std::span<const std::byte> message) override {
    switch (header.type) {
      case wire::FrameType::welcome:
        connection_->send(wire::encode(wire::Control{verb_}));
        return Memory{};
      case wire::FrameType::refused: {
        Result<wire::Refused> refusal = wire::decode_refused(message);
        return refusal ? refusal->why : refusal.error();
      }
      case wire::FrameType::control_reply: {
        Result<wire::ControlReply> reply = wire::decode_control_reply(message);
        if (!reply) return std::move(reply).error();
        finish(std::move(reply->json));
        return Memory{};
      }
      default:
        return Error(EPROTO, "it answered with a frame of another kind");
    }
  }
  void on_payload() override {}
  void on_closed(const Error& why) override { finish(why); }

  void finish(Result<std::string> answer) {
    if (!answer_) answer_ = std::move(answer);
  }

  Loop& loop_;
  const std::string verb_;
  std::unique_ptr<Connection> connection_;
  std::optional<Result<std::string>> answer_;
  // The transport may answer after we gave up.
  std::shared_ptr<ControlCall*> alive_ = std::make_shared<ControlCall*>(this);
};

}  // namespace

Result<std::string> control(const Address& address, std::string_view verb, Duration timeout,
                            RemoteRuntime runtime) {
  const std::unique_ptr<Loop> own = runtime.loop ? nullptr : runtime.make_loop();
  Loop& loop = own ? *own : *runtime.loop;
  const std::unique_ptr<Transport> transport = runtime.make_transport(loop);
  return ControlCall(loop, verb).run(*transport, address, timeout);
}

}  // namespace forebay
