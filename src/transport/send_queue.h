// SendQueue: the frames of one connection on their way to the kernel, in order, and the `sent`
// calls that are due. It knows no socket. With a seal (frame_seal.h) each frame gets its tags here:
// the memory of a payload must stay as it is from then on, or its tag is wrong.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "transport/frame_seal.h"
#include "transport/payload_cursor.h"
#include "transport/transport.h"

namespace forebay {

class SendQueue {
 public:
  // For the frames that are pushed from now on. The seal outlives this.
  void set_seal(FrameSeal& seal) { seal_ = &seal; }
  void push(std::string head, Memory payload, Connection::Sent sent);
  bool empty() const { return frames_.empty(); }
  // What was pushed and is not gone: tags do not count, but for the last thing to go.
  uint64_t bytes() const {
    return bytes_ > tags_ ? bytes_ - tags_ : static_cast<uint64_t>(bytes_ != 0);
  }

  // The bytes that go next, of as many frames as fit; returns how many iovecs.
  size_t gather(std::span<iovec> out);
  // The kernel took n of them.
  void took(uint64_t n);

  // The `sent` calls that are due, in order. They are taken out one by one, because each may do
  // anything, destroying the connection included.
  bool has_finished() const { return !finished_.empty(); }
  Connection::Sent take_finished();
  // The oldest frame that is not finished, given up.
  Connection::Sent take_unfinished();

 private:
  static constexpr size_t kBounce = 64 * 1024;

  struct Payload {
    explicit Payload(Memory memory) : cursor(std::move(memory)) {}
    PayloadCursor cursor;
    // Finely scattered memory goes out through here.
    std::unique_ptr<std::byte[]> bounce;
    size_t bounce_begin = 0, bounce_end = 0;
    FrameSeal::Tag tag;  // follows, if it is sealed
    size_t tag_done = FrameSeal::kTagBytes;

    uint64_t left() const { return bytes_left() + tag.size() - tag_done; }
    uint64_t bytes_left() const { return cursor.left() + bounce_end - bounce_begin; }
    size_t gather(std::span<iovec> out, bool& whole);
    size_t gather_bytes(std::span<iovec> out, bool& whole);
    size_t gather_fine(std::span<iovec> out);
    uint64_t took(uint64_t n);
    uint64_t took_bytes(uint64_t n);
  };

  // Small, because most frames have no payload and their queue is on the path of every request.
  struct Frame {
    std::string head;
    size_t head_done = 0;
    uint32_t tags = 0;  // bytes of them
    std::unique_ptr<Payload> payload;
    Connection::Sent sent;

    uint64_t left() const { return head.size() - head_done + (payload ? payload->left() : 0); }
    size_t gather(std::span<iovec> out, bool& whole);
    uint64_t took(uint64_t n);
  };

  std::deque<Frame> frames_;
  std::deque<Connection::Sent> finished_;
  FrameSeal* seal_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t tags_ = 0;  // of the frames that are here, whole or in part
};

}  // namespace forebay
