// Building and opening one message: what the codec's own files share. FlatBuffers' types stop here;
// only the .cc files of this folder include this header.
#pragma once

#include <fmt/format.h>
#include <messages_generated.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/op.h"
#include "wire/codec.h"
#include "wire/frame.h"

namespace forebay::wire {

using Builder = flatbuffers::FlatBufferBuilder;
using ByteVector = flatbuffers::Vector<uint8_t>;

// ---- Building ----

// This thread's builder, empty and ready. Only its memory outlives a message, to save an allocation
// for each: one message at a time is built, from scratch() to finish().
Builder& scratch();

// The head of the frame: header and the message whose root is `root`.
std::string finish_frame(Builder& builder, FrameType type, flatbuffers::Offset<void> root,
                         uint32_t payload_size);

template <class T>
std::string finish(Builder& builder, FrameType type, flatbuffers::Offset<T> root,
                   uint32_t payload_size = 0) {
  return finish_frame(builder, type, flatbuffers::Offset<void>(root.o), payload_size);
}

// Empty bytes and texts are absent: a null offset is a field that is not written.
inline flatbuffers::Offset<ByteVector> put_bytes(Builder& b, std::string_view bytes) {
  if (bytes.empty()) return 0;
  return b.CreateVector(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}
inline flatbuffers::Offset<flatbuffers::String> put_text(Builder& b, std::string_view text,
                                                         size_t limit) {
  if (text.empty()) return 0;
  return b.CreateString(text.data(), std::min(text.size(), limit));
}
flatbuffers::Offset<fbs::Error> put_error(Builder& b, const Error& error);

inline fbs::Time put_time(const FileTime& t) {
  return {t.seconds, t.nanoseconds};
}
inline FileTime get_time(const fbs::Time& t) {
  return {t.seconds(), t.nanoseconds()};
}

// ---- Opening ----

// A received message at an address that FlatBuffers can read from: the bytes themselves, or a copy.
class Aligned {
 public:
  explicit Aligned(Bytes bytes);
  const uint8_t* data() const { return data_; }

 private:
  static constexpr size_t kAlign = 8, kSmall = 512;
  const uint8_t* data_;
  alignas(kAlign) uint8_t small_[kSmall];  // left uninitialised: most messages need no copy
  std::unique_ptr<uint64_t[]> large_;
};

// The message as a T whose every field may be read, or EPROTO. No message nests deeper than two
// tables; `max_tables` bounds what the verifier does for those with lists of tables.
template <class T>
Result<const T*> open_message(const Aligned& message, size_t size, const char* name,
                              uint32_t max_tables) {
  constexpr uint32_t kMaxDepth = 2;
  if (size <= kMaxMessage) {
    flatbuffers::Verifier verifier(message.data(), size, kMaxDepth, max_tables);
    if (verifier.VerifyBuffer<T>(nullptr)) return flatbuffers::GetRoot<T>(message.data());
  }
  return Error(EPROTO, fmt::format("{}: {} bytes that are not such a message", name, size));
}

// Copies fields out of a verified message and remembers the first one that breaks a limit; the
// value of such a field stays at its default.
class Fields {
 public:
  // `message` goes in front of the reasons; `code` is the error where a field has none of its own.
  explicit Fields(const char* message, int code = EPROTO) : message_(message), code_(code) {}

  void bytes(const char* field, const ByteVector* from, size_t limit, std::string& to,
             int code = 0) {
    if (from && fits(field, from->size(), limit, code))
      to.assign(reinterpret_cast<const char*>(from->data()), from->size());
  }
  void text(const char* field, const flatbuffers::String* from, size_t limit, std::string& to) {
    if (from && fits(field, from->size(), limit)) to.assign(from->c_str(), from->size());
  }
  template <class E>
  void enumeration(const char* field, uint8_t from, E last, E& to) {
    if (within(field, from, static_cast<uint8_t>(last))) to = static_cast<E>(from);
  }
  template <class N>
  void number(const char* field, N from, N limit, N& to) {
    if (within(field, from, limit)) to = from;
  }
  bool fits(const char* field, size_t size, size_t limit, int code = 0) {
    if (size <= limit) [[likely]]
      return true;
    too_long(field, size, limit, code);
    return false;
  }
  bool within(const char* field, uint64_t value, uint64_t limit) {
    if (value <= limit) [[likely]]
      return true;
    too_large(field, value, limit);
    return false;
  }
  void fail(int code, std::string_view reason) {
    if (!error_) error_.emplace(code ? code : code_, fmt::format("{}: {}", message_, reason));
  }

  bool ok() const { return !error_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  void too_long(const char* field, size_t size, size_t limit, int code);
  void too_large(const char* field, uint64_t value, uint64_t limit);

  const char* message_;
  int code_;
  std::optional<Error> error_;
};

// The error that a message carries; `from` may be null, and then `fields` fails.
std::optional<Error> get_error(const fbs::Error* from, Fields& fields);

// The value, if every field was good.
template <class T>
Result<T> checked(T value, const Fields& fields) {
  if (!fields.ok()) return *fields.error();
  return value;
}

}  // namespace forebay::wire
