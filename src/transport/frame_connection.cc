#include "transport/frame_connection.h"

#include "transport/frame_stream.h"

namespace forebay {

FrameConnection::FrameConnection(Loop& loop, std::unique_ptr<ByteStream> bytes, Peer peer,
                                 FrameRules rules)
    : stream_(std::make_shared<FrameStream>(loop, std::move(bytes), std::move(peer),
                                            std::move(rules))) {
  stream_->begin();
}

FrameConnection::~FrameConnection() {
  stream_->abandon();
}

void FrameConnection::start(ConnectionHandler& handler) {
  stream_->start(handler);
}

void FrameConnection::send(std::string head, Memory payload, Sent sent) {
  const auto keep = stream_;  // `sent` may destroy this connection
  keep->send(std::move(head), std::move(payload), std::move(sent));
}

void FrameConnection::announce() {
  stream_->announce();
}

void FrameConnection::post(uint64_t bits) {
  stream_->post(bits);
}

bool FrameConnection::hand(int descriptor) {
  return stream_->hand(descriptor);
}

Fd FrameConnection::take_handed(uint64_t inode) {
  return stream_->take_handed(inode);
}

uint64_t FrameConnection::unsent() const {
  return stream_->unsent();
}

void FrameConnection::close(Error why) {
  stream_->close(std::move(why));
}

const Peer& FrameConnection::peer() const {
  return stream_->peer();
}

Loop& FrameConnection::loop() {
  return stream_->loop();
}

int FrameConnection::descriptor() const {
  return stream_->descriptor();
}

std::shared_ptr<SharedRegion> FrameConnection::shared() const {
  return stream_->shared();
}

void FrameConnection::do_move(std::unique_ptr<Connection> self, Loop& to, Moved moved) {
  stream_->detach();
  to.post([self = std::move(self), stream = stream_, &to, moved = std::move(moved)]() mutable {
    stream->attach(to);
    moved(std::move(self));
  });
}

}  // namespace forebay
