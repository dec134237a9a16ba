// SendQueue: the frames of one connection on their way to the kernel, in order, and the `sent`
// calls that are due. It knows no socket.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "transport/payload_cursor.h"
#include "transport/transport.h"

namespace forebay {

class SendQueue {
 public:
  void push(std::string head, Memory payload, Connection::Sent sent);
  bool empty() const { return frames_.empty(); }
  uint64_t bytes() const { return bytes_; }

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

    uint64_t left() const { return cursor.left() + bounce_end - bounce_begin; }
    size_t gather(std::span<iovec> out, bool& whole);
    size_t gather_fine(std::span<iovec> out);
    uint64_t took(uint64_t n);
  };

  // Small, because most frames have no payload and their queue is on the path of every request.
  struct Frame {
    std::string head;
    size_t head_done = 0;
    std::unique_ptr<Payload> payload;
    Connection::Sent sent;

    uint64_t left() const { return head.size() - head_done + (payload ? payload->left() : 0); }
    size_t gather(std::span<iovec> out, bool& whole);
    uint64_t took(uint64_t n);
  };

  std::deque<Frame> frames_;
  std::deque<Connection::Sent> finished_;
  uint64_t bytes_ = 0;
};

}  // namespace forebay
