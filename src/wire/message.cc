#include "wire/message.h"

#include <array>
#include <cstring>

namespace forebay::wire {

Builder& scratch() {
  // A rare long message must not keep its memory in every thread for good.
  constexpr size_t kKeep = 64 * 1024;
  static thread_local Builder builder(1024);
  if (builder.GetSize() > kKeep)
    builder.Reset();
  else
    builder.Clear();
  // Messages are multiples of 8 bytes whatever they hold, so that the next frame stays aligned.
  builder.Align(8);
  return builder;
}

std::string finish_frame(Builder& builder, FrameType type, flatbuffers::Offset<void> root,
                         uint32_t payload_size) {
  builder.Finish(root);
  const uint32_t size = builder.GetSize();
  FOREBAY_ASSERT(size <= kMaxMessage && payload_size <= kMaxPayload,
                 fmt::format("a frame of type {}: message {} bytes, payload {}",
                             static_cast<int>(type), size, payload_size));
  std::array<std::byte, kHeaderSize> header;
  encode(FrameHeader{type, size, payload_size}, header);
  std::string head;
  head.reserve(kHeaderSize + size);
  head.append(reinterpret_cast<const char*>(header.data()), header.size());
  head.append(reinterpret_cast<const char*>(builder.GetBufferPointer()), size);
  return head;
}

flatbuffers::Offset<fbs::Error> put_error(Builder& b, const Error& error) {
  const bool known = error.code() > 0 && error.code() <= kMaxErrorCode;
  const auto what = put_text(b, error.what(), kMaxText);
  fbs::ErrorBuilder table(b);
  table.add_done(error.done());
  table.add_what(what);
  table.add_code(known ? error.code() : EIO);
  table.add_outcome_unknown(error.is_outcome_unknown());
  return table.Finish();
}

std::optional<Error> get_error(const fbs::Error* from, Fields& fields) {
  if (!from) return fields.fail(0, "has no error"), std::nullopt;
  if (from->code() <= 0 || from->code() > kMaxErrorCode)
    fields.fail(0, fmt::format("error code {} is not one of 1 to {}", from->code(), kMaxErrorCode));
  std::string what;
  uint64_t done = 0;
  fields.text("the error's text", from->what(), kMaxText, what);
  fields.number("the error's count", from->done(), kMaxOffset, done);
  if (!fields.ok()) return std::nullopt;
  Error error = Error(from->code(), std::move(what)).with_done(done);
  return from->outcome_unknown() ? std::move(error).with_unknown_outcome() : error;
}

Aligned::Aligned(Bytes bytes) : data_(reinterpret_cast<const uint8_t*>(bytes.data())) {
  // What is too long is refused by its size alone (open_message).
  if (reinterpret_cast<uintptr_t>(data_) % kAlign == 0 || bytes.size() > kMaxMessage) return;
  uint8_t* to = small_;
  if (bytes.size() > kSmall) {
    large_ = std::make_unique_for_overwrite<uint64_t[]>(bytes.size() / kAlign + 1);
    to = reinterpret_cast<uint8_t*>(large_.get());
  }
  std::memcpy(to, bytes.data(), bytes.size());
  data_ = to;
}

void Fields::too_long(const char* field, size_t size, size_t limit, int code) {
  fail(code, fmt::format("{} has {} bytes or parts; the limit is {}", field, size, limit));
}

void Fields::too_large(const char* field, uint64_t value, uint64_t limit) {
  fail(0, fmt::format("{} is {}; the largest is {}", field, value, limit));
}

}  // namespace forebay::wire
