#include "wire/frame.h"

#include <fmt/format.h>

#include "wire/little_endian.h"

namespace forebay::wire {
namespace {

constexpr uint32_t kMagic = 0x59414246;  // "FBAY" in the order of the bytes

bool carries_payload(FrameType type) {
  return type == FrameType::request || type == FrameType::reply || type == FrameType::data;
}

template <class... Args>
Error broken(fmt::format_string<Args...> text, Args&&... args) {
  return Error(EPROTO, "frame header: " + fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace

void encode(const FrameHeader& header, std::span<std::byte, kHeaderSize> out) {
  put_number<uint32_t>(kMagic, out.data());
  put_number<uint8_t>(kVersion, out.data() + 4);
  put_number<uint8_t>(static_cast<uint8_t>(header.type), out.data() + 5);
  put_number<uint16_t>(0, out.data() + 6);
  put_number<uint32_t>(header.message_size, out.data() + 8);
  put_number<uint32_t>(header.payload_size, out.data() + 12);
}

Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderSize> in) {
  const auto magic = get_number<uint32_t>(in.data());
  if (magic != kMagic)
    return broken("begins with {:08x}, not with \"FBAY\": the peer does not speak this protocol",
                  __builtin_bswap32(magic));
  const auto version = get_number<uint8_t>(in.data() + 4);
  if (version != kVersion)
    return broken("version {}, but this side reads version {} only", version, kVersion);
  const auto type = get_number<uint8_t>(in.data() + 5);
  if (type < static_cast<uint8_t>(FrameType::hello) || type > static_cast<uint8_t>(kLastFrameType))
    return broken("unknown frame type {}", type);
  if (get_number<uint16_t>(in.data() + 6) != 0) return broken("bytes 6 and 7 are not zero");

  const FrameHeader header{static_cast<FrameType>(type), get_number<uint32_t>(in.data() + 8),
                           get_number<uint32_t>(in.data() + 12)};
  if (header.message_size > kMaxMessage)
    return broken("a message of {} bytes; the limit is {}", header.message_size, kMaxMessage);
  if (header.payload_size > kMaxPayload)
    return broken("a payload of {} bytes; the limit is {}", header.payload_size, kMaxPayload);
  if (header.payload_size != 0 && !carries_payload(header.type))
    return broken("a payload of {} bytes on a frame of type {}, which has none",
                  header.payload_size, type);
  return header;
}

}  // namespace forebay::wire
