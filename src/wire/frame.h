// The frame: 16 bytes of header, a FlatBuffers message, and a payload of raw bytes that is never
// copied through the message. docs/wire-format.md is the format, with the test vectors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace forebay::wire {

enum class FrameType : uint8_t {
  hello = 1,      // client: versions, export, session to resume
  welcome,        // server: session, credits, root handle
  refused,        // server: why not; then it closes
  request,        // client: an operation; payload: eager data of a write
  reply,          // server: its result; payload: data of a small read
  pull,           // server: send me this part of a request's data or extent list
  data,           // either: a part of a request's stream or list; payload: the bytes
  cancel,         // client: give up a request if it has not begun
  goodbye,        // server: stopping; what is unanswered was not begun. client: leaving for good
  control,        // client: status, stop
  control_reply,  // server: a JSON text
  taken,          // client: has copied data out of the shared area; the place is the server's again
  recall,         // server: a lease is wanted back
  released,       // client: gives a lease back
};
inline constexpr FrameType kLastFrameType = FrameType::released;

inline constexpr uint8_t kVersion =
    1;  // of the header; messages have a version of their own (Hello)
inline constexpr size_t kHeaderSize = 16;
inline constexpr uint32_t kMaxMessage = 1u << 20;   // bytes of one message
inline constexpr uint32_t kMaxPayload = 16u << 20;  // bytes of one payload; bulk goes in chunks

// On the wire, little-endian: magic "FBAY" (4), version (1), type (1), zero (2), message size (4),
// payload size (4).
struct FrameHeader {
  FrameType type = FrameType::hello;
  uint32_t message_size = 0;
  uint32_t payload_size = 0;
  bool operator==(const FrameHeader&) const = default;
};

void encode(const FrameHeader& header, std::span<std::byte, kHeaderSize> out);
// EPROTO with the reason: not our magic, another version, an unknown type, sizes beyond the limits,
// a payload on a type other than request, reply and data.
Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderSize> in);

}  // namespace forebay::wire
