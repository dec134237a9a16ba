#include "transport/send_queue.h"

#include <algorithm>

namespace forebay {

void SendQueue::push(std::string head, Memory payload, Connection::Sent sent) {
  bytes_ += head.size() + payload.shape.total().value;
  frames_.emplace_back(std::move(head), std::move(payload), std::move(sent));
}

size_t SendQueue::gather(std::span<iovec> out) {
  size_t count = 0;
  for (Frame& frame : frames_) {
    bool whole = true;
    count += frame.gather(out.subspan(count), whole);
    if (!whole || count == out.size()) break;
  }
  return count;
}

// `whole` becomes false if something of the frame did not fit, so that no later frame may follow.
size_t SendQueue::Frame::gather(std::span<iovec> out, bool& whole) {
  size_t count = 0;
  if (head_done != head.size()) {
    out[count++] = {head.data() + head_done, head.size() - head_done};
  }
  if (payload.fine()) {
    const size_t described = gather_fine(out.subspan(count));
    whole = described == 1 && payload.left() == 0;
    return count + described;
  }
  const auto d = payload.describe(out.subspan(count), UINT64_MAX);
  whole = d.bytes == payload.left();
  return count + d.count;
}

size_t SendQueue::Frame::gather_fine(std::span<iovec> out) {
  if (out.empty()) return 0;
  if (bounce_begin == bounce_end && payload.left() != 0) {
    if (!bounce) bounce = std::make_unique_for_overwrite<std::byte[]>(kBounce);
    bounce_begin = 0;
    bounce_end = payload.drain({bounce.get(), kBounce});
  }
  if (bounce_begin == bounce_end) return 0;
  out[0] = {bounce.get() + bounce_begin, bounce_end - bounce_begin};
  return 1;
}

uint64_t SendQueue::Frame::took(uint64_t n) {
  const uint64_t of_head = std::min<uint64_t>(n, head.size() - head_done);
  head_done += of_head;
  const uint64_t of_bounce = std::min<uint64_t>(n - of_head, bounce_end - bounce_begin);
  bounce_begin += of_bounce;
  uint64_t of_payload = 0;
  if (!payload.fine()) {
    of_payload = std::min(n - of_head - of_bounce, payload.left());
    payload.advance(of_payload);
  }
  return of_head + of_bounce + of_payload;
}

void SendQueue::took(uint64_t n) {
  bytes_ -= n;
  while (!frames_.empty()) {
    Frame& frame = frames_.front();
    n -= frame.took(n);
    if (frame.left() != 0) break;
    if (frame.sent) finished_.push_back(std::move(frame.sent));
    frames_.pop_front();
  }
  FOREBAY_ASSERT(n == 0);
}

Connection::Sent SendQueue::take_finished() {
  Connection::Sent sent = std::move(finished_.front());
  finished_.pop_front();
  return sent;
}

Connection::Sent SendQueue::take_unfinished() {
  Frame& frame = frames_.front();
  bytes_ -= frame.left();
  Connection::Sent sent = std::move(frame.sent);
  frames_.pop_front();
  return sent;
}

}  // namespace forebay
