// Messages as C++ values, to and from bytes. Everything that comes from outside is verified
// (FlatBuffers' verifier, then our own limits) before a value is made; a decoder returns EPROTO
// with the reason and never trusts a size. No sockets here. Any thread; encoders keep scratch
// memory per thread and no state.
//
// Encoders return a whole frame's head: header and message; `payload_size` goes into the header,
// and the payload itself follows on the connection (transport.h). They assert that what they are
// given is within the limits below, and shorten what is only for people (labels, an error's text).
//
// Decoders take the message without its header. It may lie at any address, but one that is not a
// multiple of 8 costs a copy. Encoded heads are multiples of 8 bytes long, so a receive buffer that
// begins at such an address keeps messages there until a payload of odd length shifts them.
//
// Two kinds of wrong: a message that breaks the format is EPROTO and ends the connection; a
// well-formed request with bad arguments is decoded with RequestMessage::bad set, and only that
// request fails.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/op.h"
#include "wire/frame.h"

namespace forebay::wire {

inline constexpr uint16_t kProtocolMin = 1, kProtocolMax = 1;

// Limits of the messages' parts, beside those of core/op.h. docs/wire-format.md lists them all.
inline constexpr size_t kMaxLabel = 255;          // export, host, program, job, method, verb
inline constexpr size_t kMaxText = 4096;          // an error's text, a goodbye's reason
inline constexpr size_t kMaxKey = 64;             // a session's key
inline constexpr size_t kMaxAuth = 16 * 1024;     // a credential
inline constexpr size_t kMaxServers = 64 * 1024;  // the names of all servers
inline constexpr size_t kMaxGroups = 65536;       // NGROUPS_MAX
inline constexpr size_t kMaxLoops = 64;           // nested strided loops of one request
inline constexpr size_t kMaxInlineBlocks = 1024;  // 16 KiB of message
// Entries of one readdir reply. Each counts kEntryBytes, kEntryAttrBytes if it has attributes, its
// name and its handle: no less than it takes when encoded.
inline constexpr size_t kMaxEntryBytes = kMaxMessage - 128 * 1024;
inline constexpr size_t kEntryBytes = 72, kEntryAttrBytes = 168;
inline constexpr size_t kMaxJson = kMaxMessage - 64 * 1024;
inline constexpr int kMaxErrorCode = 4095;  // the kernel's

struct Hello {
  uint16_t version_min = kProtocolMin, version_max = kProtocolMax;
  enum class Purpose : uint8_t { data = 0, control = 1 } purpose = Purpose::data;
  std::string export_name;
  uint64_t session = 0;
  std::string session_key;
  std::string auth_method, auth;
  std::string host, program, job;
  uint32_t pid = 0;
  uint32_t chunk = 0;
  // Of a server that relays requests of its clients to the homes of their files (server/relay.h):
  // its name, whom it takes the other for, the names of all, and its root.
  std::string relay, home, servers;
  Handle root;
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
  uint64_t state = 0;
  bool operator==(const Welcome&) const = default;
};

struct Goodbye {
  std::string reason;
  bool written = false;
  bool operator==(const Goodbye&) const = default;
};

struct Refused {
  Error why;
  bool operator==(const Refused&) const = default;
};

// Names one request of a session: a slot is used by one request at a time, and its sequence number
// rises by one with each, so that a server can tell a repeated request from a new one.
struct RequestId {
  uint16_t slot = 0;
  uint64_t sequence = 0;
  bool operator==(const RequestId&) const = default;
};

// A request with what only the wire knows. request.memory is empty, request.caller null if absent.
// No place in the memory that a client shares with its server (transport/shared_region.h).
inline constexpr uint64_t kNoArea = UINT64_MAX;

struct RequestMessage {
  RequestMessage() = default;
  explicit RequestMessage(Request&& r) : request(std::move(r)) {}

  RequestId id;
  Request request;
  uint64_t total = 0;        // bytes of the stream of a read or write; encode() takes it from
                             // request.file unless there is a list to pull
  bool eager = false;        // a write whose stream is the payload
  uint64_t place = kNoArea;  // where the stream lies in the memory that the client lends
  uint64_t list_blocks = 0;  // not 0: request.file is empty; its blocks are to be pulled, its loops
  std::vector<Stride> list_loops;  // are here, and
  Extent list_bounds;              // every byte lies in here
  // Only decode_request() sets it: an argument that no server takes. `id` is right, what was bad in
  // `request` is left at its default, and the request is to be answered with this error. It does
  // not replace check(), which knows what each operation needs.
  std::optional<Error> bad;
};

struct ReplyMessage {
  RequestId id;
  Result<Reply> result{std::in_place};
};

enum class Part : uint8_t { stream = 0, list = 1 };

struct Pull {
  RequestId id;
  Part part = Part::stream;
  uint64_t position = 0;
  uint32_t length = 0;
  uint64_t area = kNoArea;  // where to put the bytes; else they are the payload of the answer
  bool operator==(const Pull&) const = default;
};

struct Data {
  RequestId id;
  Part part = Part::stream;
  uint64_t position = 0;
  uint64_t area = kNoArea;  // where the bytes are; else they are the payload
  uint32_t length = 0;      // of those in the area
  bool operator==(const Data&) const = default;
};

struct Cancel {
  RequestId id;
  bool operator==(const Cancel&) const = default;
};

struct Taken {
  uint64_t area = 0;
  bool operator==(const Taken&) const = default;
};

// A lease, by its number (Op::lease), is wanted back; is given back.
struct Recall {
  uint64_t lease = 0;
  bool operator==(const Recall&) const = default;
};
struct Released {
  uint64_t lease = 0;
  bool operator==(const Released&) const = default;
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
std::string encode_goodbye(std::string_view reason, bool written = false);
// The request's Extents travel in the message up to kMaxInlineBlocks blocks; beyond that the client
// sends list_blocks and bounds, and answers pulls with encode_blocks().
std::string encode(const RequestMessage&, uint32_t payload_size = 0);
// Entries beyond kMaxEntries or kMaxEntryBytes are left out and `end` is cleared: the client goes
// on from the last cookie that it got.
std::string encode_reply(const RequestId& id, const Result<Reply>& result,
                         uint32_t payload_size = 0);
inline std::string encode(const ReplyMessage& m, uint32_t payload_size = 0) {
  return encode_reply(m.id, m.result, payload_size);
}
std::string encode(const Pull&);
std::string encode(const Data&, uint32_t payload_size);
std::string encode(const Cancel&);
std::string encode(const Taken&);
std::string encode(const Recall&);
std::string encode(const Released&);
std::string encode(const Control&);
std::string encode(const ControlReply&);  // E2BIG instead of a text beyond kMaxJson

Result<Hello> decode_hello(Bytes);
Result<Welcome> decode_welcome(Bytes);
Result<Refused> decode_refused(Bytes);
Result<Goodbye> decode_goodbye(Bytes);
// In place, into a message as made by default, because these two are large and on the path of every
// request.
Result<void> decode_request_into(RequestMessage& message, Bytes bytes);
Result<void> decode_reply_into(ReplyMessage& message, Bytes bytes);
inline Result<RequestMessage> decode_request(Bytes bytes) {
  Result<RequestMessage> message(std::in_place);
  if (auto good = decode_request_into(*message, bytes); !good) message = std::move(good).error();
  return message;
}
inline Result<ReplyMessage> decode_reply(Bytes bytes) {
  Result<ReplyMessage> message(std::in_place);
  if (auto good = decode_reply_into(*message, bytes); !good) message = std::move(good).error();
  return message;
}
Result<Pull> decode_pull(Bytes);
Result<Data> decode_data(Bytes);
Result<Cancel> decode_cancel(Bytes);
Result<Taken> decode_taken(Bytes);
Result<Recall> decode_recall(Bytes);
Result<Released> decode_released(Bytes);
Result<Control> decode_control(Bytes);
Result<ControlReply> decode_control_reply(Bytes);

inline constexpr size_t kBlockBytes = 16;  // one block of a pulled list, little-endian
// `out` holds exactly kBlockBytes for each block.
void encode_blocks(std::span<const Extent> blocks, std::span<std::byte> out);
// The whole blocks of `in`, with values as they came: Extents::make() checks them.
std::vector<Extent> decode_blocks(Bytes in);

// The version that both sides speak, or EPROTO with a text that names both ranges.
Result<uint16_t> negotiate(const Hello& hello);

}  // namespace forebay::wire
