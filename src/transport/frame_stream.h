// FrameStream: what a FrameConnection does, apart from who owns it: frames over a ByteStream.
//
// Receiving: wake, one receive, hand over what is complete, wait again. A receive that filled its
// space is followed by another, up to a budget; then other connections get their turn. Sending:
// tried at once, except while the handler is being called: then when it returns, all together.
//
// Invariants:
//  1. Handler calls and `sent` calls are the last thing that a function does before it looks at the
//     stream's state anew, because they may close or abandon it.
//  2. Once closing_ is set nothing is received or sent; the deferred finish() runs every `sent`
//  that
//     is left, then on_closed.
//  3. After a failed send, what the peer had said before it went is still received; then the stream
//     closes with that failure.
#pragma once

#include <memory>
#include <optional>

#include "transport/byte_stream.h"
#include "transport/frame_connection.h"
#include "transport/frame_receiver.h"
#include "transport/send_queue.h"
#include "transport/transport.h"

namespace forebay {

class FrameStream final : public ByteStream::User,
                          public std::enable_shared_from_this<FrameStream> {
 public:
  FrameStream(Loop& loop, std::unique_ptr<ByteStream> bytes, Peer peer, FrameRules rules);

  void begin() { flush(); }  // sends what goes before the first frame
  void start(ConnectionHandler& handler);
  void send(std::string head, Memory payload, Connection::Sent sent);
  void announce() {
    if (bytes_ && !closing_) bytes_->announce();
  }
  void post(uint64_t bits) {
    if (bytes_ && !closing_) bytes_->post(bits);
  }
  bool hand(int descriptor) { return bytes_ && !closing_ && bytes_->hand(descriptor); }
  Fd take_handed(uint64_t inode) { return bytes_ ? bytes_->take_handed(inode) : Fd(); }
  uint64_t unsent() const { return out_.bytes(); }
  void close(Error why);
  void abandon();  // the owner is gone: no call to anybody any more

  // Leaves this loop; attach() is then called on the new one.
  void detach();
  void attach(Loop& loop);

  const Peer& peer() const { return peer_; }
  Loop& loop() { return *loop_; }
  int descriptor() const { return bytes_ ? bytes_->descriptor() : -1; }
  std::shared_ptr<SharedRegion> shared() const { return bytes_ ? bytes_->shared() : nullptr; }

 private:
  void readable() override;
  void writable() override;
  void deferred() override;
  void posted(uint64_t bits) override;

  bool open() const { return handler_ && !closing_; }
  void receive();
  bool receive_once(uint64_t& budget);
  void deliver();
  void drained();
  void flush();
  void push_out();
  void await_writable();
  void send_failed(int code);
  void run_finished();
  void finish();
  Error lost(int code) const;

  Loop* loop_;
  const Peer peer_;
  std::unique_ptr<ByteStream> bytes_;
  const std::unique_ptr<FrameSeals> seals_;  // null: frames are not sealed
  FrameReceiver in_;
  SendQueue out_;
  ConnectionHandler* handler_ = nullptr;
  std::optional<Error> broken_;   // sending failed
  std::optional<Error> closing_;  // why
  bool finished_ = false;         // on_closed has run
  bool delivering_ = false;       // inside handler calls: sends wait for each other
  bool awaiting_writable_ = false;
  bool calling_sent_ = false;
  bool abandoned_ = false;
  bool receive_later_ = false;  // what deferred() is to do
};

}  // namespace forebay
