#include "store/posix_layout.h"

#include <charconv>

namespace forebay::posix {
namespace {

// The number of "key=number", if `text` begins so and no digit is left over; and takes it off.
std::optional<uint32_t> take(std::string_view& text, std::string_view key) {
  if (!text.starts_with(key)) return std::nullopt;
  const char* const end = text.data() + text.size();
  uint32_t value = 0;
  const auto read = std::from_chars(text.data() + key.size(), end, value);
  if (read.ec != std::errc() || (read.ptr != end && *read.ptr != ' ')) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()) + (read.ptr != end ? 1 : 0));
  return value;
}

// Numbers in the order of bytes that the writer had.
class Numbers {
 public:
  Numbers(std::string_view bytes, bool big) : bytes_(bytes), big_(big) {}
  uint32_t at(size_t from, size_t size) const {
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<uint8_t>(bytes_[from + (big_ ? i : size - 1 - i)]);
    return value;
  }

 private:
  const std::string_view bytes_;
  const bool big_;
};

}  // namespace

std::optional<Layout> ceph_layout(std::string_view text) {
  const auto unit = take(text, "stripe_unit="), count = take(text, "stripe_count="),
             object = take(text, "object_size=");
  if (!unit || !count || !object) return std::nullopt;
  if (*unit == 0 || *count == 0 || *object == 0 || *object % *unit != 0) return std::nullopt;
  return Layout{*count == 1 ? *object : *unit, *count, 0};
}

std::optional<Layout> lustre_layout(std::string_view bytes) {
  constexpr uint32_t kV1 = 0x0BD10BD0, kV3 = 0x0BD30BD0;
  constexpr size_t kHeadV1 = 32, kHeadV3 = 48;               // version 3 adds a pool's name
  constexpr size_t kObject = 24, kIndex = 20;                // an object; its OST's index
  constexpr size_t kPattern = 4, kStripe = 24, kCount = 28;  // in the head
  constexpr uint32_t kRaid0 = 1, kOverstriped = 0x200;       // patterns
  if (bytes.size() < kHeadV1) return std::nullopt;
  const bool big = bytes.front() == '\x0b';
  const Numbers numbers(bytes, big);
  const uint32_t magic = numbers.at(0, 4);
  if (magic != kV1 && magic != kV3) return std::nullopt;
  const size_t head = magic == kV1 ? kHeadV1 : kHeadV3;
  if ((numbers.at(kPattern, 4) & ~kOverstriped) != kRaid0) return std::nullopt;
  const uint32_t stripe = numbers.at(kStripe, 4), count = numbers.at(kCount, 2);
  if (stripe == 0 || count == 0 || bytes.size() < head + count * kObject) return std::nullopt;
  return Layout{stripe, count, numbers.at(head + kIndex, 4)};
}

}  // namespace forebay::posix
