// Messages as C++ values, to and from bytes. Everything that comes from outside is verified
// (FlatBuffers' verifier, then our own limits) before a value is made; a decoder returns EPROTO with
// the reason and never trusts a size. No sockets here.
//
// Encoders return a whole frame's head: header and message; `payload_size` goes into the header, and
// the payload itself follows on the connection (transport.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/op.h"
#include "wire/frame.h"

namespace forebay::wire {

inline constexpr uint16_t kProtocolMin = 1, kProtocolMax = 1;

struct Hello {
  uint16_t version_min = kProtocolMin, version_max = kProtocolMax;
  enum class Purpose : uint8_t { data = 0, control = 1 } purpose = Purpose::data;
  std::string export_name;
  uint64_t session = 0;
  std::string session_key;
  std::string auth_method, auth;
  std::string host, program, job;
  uint32_t pid = 0;
  bool operator==(const Hello&) const = default;
};

struct Welcome {
  uint16_t version = kProtocolMax;
  uint64_t boot = 0;
  uint64_t session = 0;
  std::string session_key;
  bool resumed = false;
  Handle root;
  uint16_t slots = 1;
  uint32_t eager_bytes = 0, eager_max = 0;
  uint32_t chunk = 0;
  uint64_t max_list_bytes = 0;
  uint32_t grace_ms = 0;
  bool operator==(const Welcome&) const = default;
};

// Names one request of a session: a slot is used by one request at a time, and its sequence number
// rises by one with each, so that a server can tell a repeated request from a new one.
struct RequestId {
  uint16_t slot = 0;
  uint64_t sequence = 0;
  bool operator==(const RequestId&) const = default;
};

// A request with what only the wire knows. request.memory is empty, request.caller null if absent.
struct RequestMessage {
  RequestId id;
  Request request;
  uint64_t total = 0;          // bytes of the stream of a read or write
  bool eager = false;          // a write whose stream is the payload
  uint64_t list_blocks = 0;    // not 0: request.file has loops only; its blocks are to be pulled
  std::vector<Stride> list_loops;
  Extent list_bounds;
};

struct ReplyMessage {
  RequestId id;
  Result<Reply> result = Reply{};
};

enum class Part : uint8_t { stream = 0, list = 1 };

struct Pull {
  RequestId id;
  Part part = Part::stream;
  uint64_t position = 0;
  uint32_t length = 0;
  bool operator==(const Pull&) const = default;
};

struct Data {
  RequestId id;
  Part part = Part::stream;
  uint64_t position = 0;
  bool operator==(const Data&) const = default;
};

struct Cancel {
  RequestId id;
  bool operator==(const Cancel&) const = default;
};

struct Control {
  std::string verb;
  bool operator==(const Control&) const = default;
};

struct ControlReply {
  Result<std::string> json = std::string();
};

using Bytes = std::span<const std::byte>;

std::string encode(const Hello&);
std::string encode(const Welcome&);
std::string encode_refused(const Error&);
std::string encode_goodbye(std::string_view reason);
// The request's Extents travel in the message up to kMaxInlineBlocks blocks; beyond that the client
// sends list_blocks and bounds, and answers pulls with encode_blocks().
std::string encode(const RequestMessage&, uint32_t payload_size = 0);
std::string encode(const ReplyMessage&, uint32_t payload_size = 0);
std::string encode(const Pull&);
std::string encode(const Data&, uint32_t payload_size);
std::string encode(const Cancel&);
std::string encode(const Control&);
std::string encode(const ControlReply&);

Result<Hello> decode_hello(Bytes);
Result<Welcome> decode_welcome(Bytes);
Result<Error> decode_refused(Bytes);
Result<std::string> decode_goodbye(Bytes);
Result<RequestMessage> decode_request(Bytes);
Result<ReplyMessage> decode_reply(Bytes);
Result<Pull> decode_pull(Bytes);
Result<Data> decode_data(Bytes);
Result<Cancel> decode_cancel(Bytes);
Result<Control> decode_control(Bytes);
Result<ControlReply> decode_control_reply(Bytes);

inline constexpr size_t kMaxInlineBlocks = 1024;  // 16 KiB of message
inline constexpr size_t kBlockBytes = 16;         // one block of a pulled list, little-endian
void encode_blocks(std::span<const Extent> blocks, std::span<std::byte> out);
std::vector<Extent> decode_blocks(Bytes in);

// The version that both sides speak, or EPROTO with a text that names both ranges.
Result<uint16_t> negotiate(const Hello& hello);

}  // namespace forebay::wire
