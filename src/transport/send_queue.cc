#include "transport/send_queue.h"

#include <algorithm>

namespace forebay {

void SendQueue::push(std::string head, Memory payload, Connection::Sent sent) {
  Frame& frame = frames_.emplace_back();
  if (seal_) {
    const FrameSeal::Tag tag = seal_->head(std::as_bytes(std::span(head)));
    head.append(reinterpret_cast<const char*>(tag.data()), tag.size());
    frame.tags = FrameSeal::kTagBytes;
  }
  frame.head = std::move(head);
  if (!payload.shape.empty()) {
    FrameSeal::Tag tag{};
    if (seal_) tag = seal_->payload(payload);
    frame.payload = std::make_unique<Payload>(std::move(payload));
    if (seal_) {
      frame.payload->tag = tag;
      frame.payload->tag_done = 0;
      frame.tags += FrameSeal::kTagBytes;
    }
  }
  frame.sent = std::move(sent);
  bytes_ += frame.left();
  tags_ += frame.tags;
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
  return payload ? count + payload->gather(out.subspan(count), whole) : count;
}

size_t SendQueue::Payload::gather(std::span<iovec> out, bool& whole) {
  size_t count = bytes_left() != 0 ? gather_bytes(out, whole) : 0;
  if (!whole || tag_done == tag.size()) return count;
  if (count == out.size()) return whole = false, count;
  out[count++] = {tag.data() + tag_done, tag.size() - tag_done};
  return count;
}

size_t SendQueue::Payload::gather_bytes(std::span<iovec> out, bool& whole) {
  if (cursor.fine()) {
    const size_t described = gather_fine(out);
    whole = described == 1 && cursor.left() == 0;
    return described;
  }
  const auto d = cursor.describe(out, UINT64_MAX);
  whole = d.bytes == cursor.left();
  return d.count;
}

size_t SendQueue::Payload::gather_fine(std::span<iovec> out) {
  if (out.empty()) return 0;
  if (bounce_begin == bounce_end && cursor.left() != 0) {
    if (!bounce) bounce = std::make_unique_for_overwrite<std::byte[]>(kBounce);
    bounce_begin = 0;
    bounce_end = cursor.drain({bounce.get(), kBounce});
  }
  if (bounce_begin == bounce_end) return 0;
  out[0] = {bounce.get() + bounce_begin, bounce_end - bounce_begin};
  return 1;
}

uint64_t SendQueue::Frame::took(uint64_t n) {
  const uint64_t of_head = std::min<uint64_t>(n, head.size() - head_done);
  head_done += of_head;
  return payload ? of_head + payload->took(n - of_head) : of_head;
}

uint64_t SendQueue::Payload::took(uint64_t n) {
  const uint64_t of_bytes = took_bytes(n);
  if (bytes_left() != 0) return of_bytes;
  const uint64_t of_tag = std::min<uint64_t>(n - of_bytes, tag.size() - tag_done);
  tag_done += of_tag;
  return of_bytes + of_tag;
}

uint64_t SendQueue::Payload::took_bytes(uint64_t n) {
  const uint64_t of_bounce = std::min<uint64_t>(n, bounce_end - bounce_begin);
  bounce_begin += of_bounce;
  if (cursor.fine()) return of_bounce;
  const uint64_t of_payload = std::min(n - of_bounce, cursor.left());
  cursor.advance(of_payload);
  return of_bounce + of_payload;
}

void SendQueue::took(uint64_t n) {
  bytes_ -= n;
  while (!frames_.empty()) {
    Frame& frame = frames_.front();
    n -= frame.took(n);
    if (frame.left() != 0) break;
    if (frame.sent) finished_.push_back(std::move(frame.sent));
    tags_ -= frame.tags;
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
  tags_ -= frame.tags;
  Connection::Sent sent = std::move(frame.sent);
  frames_.pop_front();
  return sent;
}

}  // namespace forebay
