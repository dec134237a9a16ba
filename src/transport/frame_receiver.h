// FrameReceiver: turns a stream of bytes into frames for a ConnectionHandler. It knows no socket:
// it says where the next bytes belong, is told how many came, and hands over what is complete.
//
// Headers and messages gather in a small staging buffer, which grows only while a larger message
// (or a payload for finely scattered memory) is coming. Of a payload only what happened to come
// with its message is copied; the rest goes straight to the handler's memory, and the staging
// buffer stands behind it, so that the next header comes in the same call. A message lies at a
// multiple of 8.
//
// With a seal (frame_seal.h) a message is handed over only if its tag is right, and a payload is
// called whole only if its own is: until then its bytes lie in the handler's memory, unproved.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "transport/frame_seal.h"
#include "transport/payload_cursor.h"
#include "transport/transport.h"

namespace forebay {

class FrameReceiver {
 public:
  static constexpr size_t kIovecs = 64;

  // From the next frame on. The seal outlives this.
  void set_seal(FrameSeal& seal) { seal_ = &seal; }
  // The first message has at most so many bytes: whoever sends it is not known yet.
  void limit_first(uint32_t bytes) { first_limit_ = bytes; }

  // Where the next bytes go, never nothing. `lean`: a receive costs little, so that only messages
  // are staged, and payloads land where they belong.
  PayloadCursor::Described space(std::span<iovec, kIovecs> out, bool lean = false);
  // n bytes came, in the space described last.
  void received(uint64_t n);

  // Hands over one message, or the news that a payload is whole: true. False: more bytes are
  // needed. An error is the stream's (EPROTO, EBADMSG for a wrong tag) or the handler's; nothing
  // more can be received after it.
  Result<bool> step(ConnectionHandler& handler);

  bool has_staged() const { return begin_ != end_; }

 private:
  static constexpr size_t kStaging = 16 * 1024;
  static constexpr size_t kLeanStaging = 256;  // a small message or two
  static constexpr size_t kFineStaging = 64 * 1024;
  static constexpr uint64_t kOneReceive = 1_MiB;

  size_t staged() const { return end_ - begin_; }
  size_t tag_bytes() const { return seal_ ? FrameSeal::kTagBytes : 0; }
  Result<bool> step_payload(ConnectionHandler& handler);
  bool tag_is(const FrameSeal::Tag& tag);
  void make_room(size_t need);
  Result<bool> read_header();
  Result<bool> hand_over_message(ConnectionHandler& handler);
  std::span<const std::byte> take_message(size_t size);

  std::unique_ptr<std::byte[]> buffer_;
  size_t capacity_ = 0;
  size_t begin_ = 0, end_ = 0;
  std::optional<wire::FrameHeader> header_;  // read, its message not handed over yet
  bool in_payload_ = false;
  bool gave_up_ = false;  // the handler closed the connection rather than give memory
  PayloadCursor payload_;
  FrameSeal* seal_ = nullptr;
  uint32_t first_limit_ = wire::kMaxMessage;
};

}  // namespace forebay
