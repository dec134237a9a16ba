#include "transport/frame_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace forebay {

namespace {

// How many of them, from the first on, share no byte: what lands where something else of the same
// receive lands could not be verified.
PayloadCursor::Described apart(std::span<const iovec> pieces) {
  PayloadCursor::Described d;
  const auto overlap = [](const iovec& a, const iovec& b) {
    const auto *x = static_cast<std::byte*>(a.iov_base), *y = static_cast<std::byte*>(b.iov_base);
    return x < y + b.iov_len && y < x + a.iov_len;
  };
  for (const iovec& piece : pieces) {
    for (size_t i = 0; i < d.count; ++i) {
      if (overlap(pieces[i], piece)) return d;
    }
    ++d.count;
    d.bytes += piece.iov_len;
  }
  return d;
}

Error wrong_tag(const char* what) {
  return Error(EBADMSG, fmt::format("the seal of a {} is wrong: it was changed on its way, or is "
                                    "not from who it says",
                                    what));
}

}  // namespace

PayloadCursor::Described FrameReceiver::space(std::span<iovec, kIovecs> out, bool lean) {
  PayloadCursor::Described d;
  size_t need = wire::kHeaderSize + tag_bytes();
  if (in_payload_ && !payload_.fine()) {
    d = payload_.describe(out.first<kIovecs - 1>(), kOneReceive);
    if (seal_ && d.count > 1) d = apart(std::span(out).first(d.count));
    if (d.bytes != payload_.left()) return d;
  } else if (in_payload_) {
    need = std::min<size_t>(payload_.left() + need, kFineStaging);
  } else if (header_) {
    need = header_->message_size + tag_bytes();
  }
  make_room(need);
  size_t staging = capacity_ - end_;
  if (lean) staging = std::min(staging, std::max(need, kLeanStaging));
  out[d.count++] = {buffer_.get() + end_, staging};
  d.bytes += staging;
  return d;
}

// Room for `need` bytes from begin_ on, at least one of them free. An emptied buffer returns to its
// usual size.
void FrameReceiver::make_room(size_t need) {
  if (begin_ == end_) begin_ = end_ = 0;
  const size_t wanted = std::max(need, kStaging);
  const bool too_small = capacity_ < wanted;
  const bool too_large = capacity_ > wanted && staged() == 0;
  if (too_small || too_large) {
    auto fresh = std::make_unique_for_overwrite<std::byte[]>(wanted);
    if (staged() != 0) std::memcpy(fresh.get(), buffer_.get() + begin_, staged());
    buffer_ = std::move(fresh);
    capacity_ = wanted;
  } else if (begin_ != 0 && (capacity_ - begin_ < need || end_ == capacity_)) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, staged());
  } else {
    return;
  }
  end_ = staged();
  begin_ = 0;
}

void FrameReceiver::received(uint64_t n) {
  if (in_payload_ && !payload_.fine()) {
    const uint64_t direct = std::min(n, payload_.left());
    if (seal_ && direct != 0) {
      std::array<iovec, kIovecs> pieces;
      const auto d = payload_.describe(pieces, direct);
      FOREBAY_ASSERT(d.bytes == direct);
      for (const iovec& piece : std::span(pieces).first(d.count)) {
        seal_->add({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
      }
    }
    payload_.advance(direct);
    n -= direct;
  }
  end_ += n;
  FOREBAY_ASSERT(end_ <= capacity_);
}

Result<bool> FrameReceiver::step(ConnectionHandler& handler) {
  FOREBAY_ASSERT(!gave_up_, "a handler gave no memory for a payload, and did not close");
  if (in_payload_) return step_payload(handler);
  if (!header_) {
    auto read = read_header();
    if (!read || !*read) return read;
  }
  if (staged() < header_->message_size + tag_bytes()) return false;
  return hand_over_message(handler);
}

Result<bool> FrameReceiver::step_payload(ConnectionHandler& handler) {
  if (payload_.left() != 0) {
    const std::span<const std::byte> here{buffer_.get() + begin_, staged()};
    const uint64_t filled = payload_.fill(here);
    if (seal_) seal_->add(here.first(filled));
    begin_ += filled;
  }
  if (payload_.left() != 0) return false;
  if (staged() < tag_bytes()) return false;
  if (seal_ && !tag_is(seal_->end_payload())) return wrong_tag("payload");
  in_payload_ = false;
  handler.on_payload();
  return true;
}

// Is that what comes next? Goes past it.
bool FrameReceiver::tag_is(const FrameSeal::Tag& tag) {
  const std::byte* at = buffer_.get() + begin_;
  begin_ += tag.size();
  return FrameSeal::same(tag, {at, tag.size()});
}

Result<bool> FrameReceiver::read_header() {
  if (staged() < wire::kHeaderSize) return false;
  const std::byte* at = buffer_.get() + begin_;
  auto header = wire::decode_header(std::span<const std::byte, wire::kHeaderSize>(at, at + 16));
  if (!header) return std::move(header).error();
  if (header->message_size > first_limit_) {
    return Error(EPROTO, fmt::format("a first message of {} bytes; the limit is {}",
                                     header->message_size, first_limit_));
  }
  first_limit_ = wire::kMaxMessage;
  header_ = *header;
  begin_ += wire::kHeaderSize;
  return true;
}

Result<bool> FrameReceiver::hand_over_message(ConnectionHandler& handler) {
  const wire::FrameHeader header = *header_;
  header_.reset();
  const std::span<const std::byte> message = take_message(header.message_size);
  if (seal_) {
    std::array<std::byte, wire::kHeaderSize> bytes;
    wire::encode(header, bytes);  // a header has one form only
    if (!tag_is(seal_->head(bytes, message))) return wrong_tag("message");
  }
  auto memory = handler.on_message(header, message);
  if (!memory) return std::move(memory).error();
  if (header.payload_size == 0) return true;
  const uint64_t given = memory->shape.total().value;
  gave_up_ = given == 0;
  if (gave_up_) return true;
  FOREBAY_ASSERT(given == header.payload_size,
                 fmt::format("memory of {} bytes for a payload of {}", given, header.payload_size));
  payload_.reset(std::move(*memory));
  if (seal_) seal_->begin_payload();
  in_payload_ = true;
  return true;
}

// The bytes in front of a message are its header, read already, so the message may slide over them
// to where it is aligned.
std::span<const std::byte> FrameReceiver::take_message(size_t size) {
  std::byte* message = buffer_.get() + begin_;
  const size_t off = begin_ % 8;
  if (off != 0) {
    std::memmove(message - off, message, size);
    message -= off;
  }
  begin_ += size;
  return {message, size};
}

}  // namespace forebay
