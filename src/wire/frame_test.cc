#include "wire/frame.h"

#include <gtest/gtest.h>

#include "core/testing.h"

namespace forebay::wire {
namespace {

using HeaderBytes = std::array<std::byte, kHeaderSize>;

HeaderBytes encoded(const FrameHeader& header) {
  HeaderBytes bytes;
  encode(header, bytes);
  return bytes;
}

// The reason why a header with byte `at` set to `value` is refused, or "" if it is not.
std::string refusal(FrameHeader header, size_t at, uint8_t value) {
  HeaderBytes bytes = encoded(header);
  bytes[at] = std::byte{value};
  const auto decoded = decode_header(bytes);
  if (decoded) return "";
  EXPECT_EQ(decoded.error().code(), EPROTO);
  return decoded.error().what();
}

TEST(Frame, EveryTypeSurvivesTheRoundTrip) {
  for (int type = 1; type <= static_cast<int>(kLastFrameType); ++type) {
    const FrameHeader header{static_cast<FrameType>(type), kMaxMessage, 0};
    EXPECT_EQ(*decode_header(encoded(header)), header);
  }
  const FrameHeader full{FrameType::data, 0x12345, kMaxPayload};
  EXPECT_EQ(*decode_header(encoded(full)), full);
}

TEST(Frame, RefusalsGiveTheReason) {
  const FrameHeader good{FrameType::data, 64, 4096};
  EXPECT_NE(refusal(good, 0, 'f').find("not with \"FBAY\""), std::string::npos);
  EXPECT_NE(refusal(good, 4, 2).find("version 2"), std::string::npos);
  EXPECT_NE(refusal(good, 5, 0).find("unknown frame type 0"), std::string::npos);
  EXPECT_NE(refusal(good, 5, 15).find("unknown frame type 15"), std::string::npos);
  EXPECT_NE(refusal(good, 6, 1).find("not zero"), std::string::npos);
  EXPECT_NE(refusal(good, 7, 1).find("not zero"), std::string::npos);
  EXPECT_NE(refusal(good, 11, 1).find("message"), std::string::npos);
  EXPECT_NE(refusal(good, 15, 0xff).find("payload"), std::string::npos);
  EXPECT_NE(refusal(good, 5, 1).find("has none"), std::string::npos);
}

TEST(Frame, AnythingIsRefusedOrSurvives) {
  std::mt19937_64 random(test_seed());
  HeaderBytes bytes = encoded({FrameType::request, 100, 100});
  for (int i = 0; i < 100000; ++i) {
    bytes[random() % kHeaderSize] ^= std::byte(1u << random() % 8);
    if (const auto header = decode_header(bytes)) {
      EXPECT_EQ(encoded(*header), bytes);
      EXPECT_LE(header->message_size, kMaxMessage);
      EXPECT_LE(header->payload_size, kMaxPayload);
    }
    if (i % 4 == 0) bytes = encoded({FrameType::request, 100, 100});
  }
}

}  // namespace
}  // namespace forebay::wire
