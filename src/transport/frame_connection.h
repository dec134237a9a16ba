// FrameConnection: a Connection over a connected stream socket. It is a thin owner of a
// FrameStream, which is shared with the calls under way, so that a handler may close or destroy
// the connection from inside any call.
#pragma once

#include <memory>

#include "transport/byte_stream.h"
#include "transport/frame_seal.h"
#include "transport/transport.h"

namespace forebay {

class FrameStream;

struct FrameRules {
  std::unique_ptr<FrameSeals> seals = nullptr;  // null: frames go as they are
  uint32_t first_message = wire::kMaxMessage;   // bytes of the first message, at most
};

class FrameConnection final : public Connection {
 public:
  FrameConnection(Loop& loop, std::unique_ptr<ByteStream> bytes, Peer peer, FrameRules rules = {});
  ~FrameConnection() override;

  void start(ConnectionHandler& handler) override;
  void send(std::string head, Memory payload, Sent sent) override;
  void announce() override;
  void post(uint64_t bits) override;
  bool hand(int descriptor) override;
  Fd take_handed(uint64_t inode) override;
  uint64_t unsent() const override;
  void close(Error why) override;
  const Peer& peer() const override;
  Loop& loop() override;
  int descriptor() const override;
  std::shared_ptr<SharedRegion> shared() const override;

 private:
  void do_move(std::unique_ptr<Connection> self, Loop& to, Moved moved) override;

  std::shared_ptr<FrameStream> stream_;
};

}  // namespace forebay
