// CRC-32C (Castagnoli), for what is read back from a disk. A byte at a time by a table: fast enough
// for records of some dozen bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace forebay {

inline constexpr std::array<uint32_t, 256> kCrc32cTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}();

constexpr uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kCrc32cTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~crc;
}
static_assert(crc32c("123456789") == 0xe3069283u);

}  // namespace forebay
