#include "store/posix_layout.h"

#include <charconv>

namespace forebay::posix {
namespace {

// The number of "key=number", if `text` begins so and no digit is left over; and takes it off.
std::optional<uint32_t> take_number(std::string_view& text, std::string_view key) {
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
  Numbers from(size_t begin) const { return {bytes_.substr(begin), big_}; }

 private:
  const std::string_view bytes_;
  const bool big_;
};

// ---- Lustre: numbers of include/uapi/linux/lustre/lustre_user.h, and where they stand ----

constexpr uint32_t kV1 = 0x0BD10BD0, kV3 = 0x0BD30BD0, kComposite = 0x0BD60BD0;
constexpr uint32_t kRaid0 = 1, kOnMdt = 0x100, kOverstriped = 0x200;  // patterns
constexpr uint32_t kExtension = 0x40, kParity = 0x80;                 // entries without data
constexpr size_t kHead = 32, kPool = 16;     // of each version; version 3 adds a pool's name
constexpr size_t kObject = 24, kIndex = 20;  // an object; in it, its OST's index
constexpr size_t kEntry = 48;                // of a composite one, after its head

struct Plain {
  uint32_t pattern, stripe, count;
  size_t objects;  // where they begin
};

// The head of a layout of one kind of stripes, of which kHead bytes are there.
std::optional<Plain> plain_layout(const Numbers& numbers) {
  const uint32_t magic = numbers.at(0, 4);
  if (magic != kV1 && magic != kV3) return std::nullopt;
  return Plain{numbers.at(4, 4), numbers.at(24, 4), numbers.at(28, 2),
               magic == kV1 ? kHead : kHead + kPool};
}

std::optional<Layout> composite_layout(std::string_view bytes, const Numbers& numbers) {
  const size_t entries = numbers.at(14, 2);
  if (bytes.size() - kHead < entries * kEntry) return std::nullopt;
  uint32_t stripe = 0;
  for (size_t at = kHead; at < kHead + entries * kEntry; at += kEntry) {
    const size_t from = numbers.at(at + 24, 4), size = numbers.at(at + 28, 4);
    if (numbers.at(at + 4, 4) & (kExtension | kParity)) continue;
    if (size < kHead || from > bytes.size() || size > bytes.size() - from) return std::nullopt;
    const auto part = plain_layout(numbers.from(from));
    if (!part) return std::nullopt;
    if (part->pattern == kOnMdt) continue;  // a file's first bytes
    if (part->stripe == 0 || (stripe != 0 && part->stripe != stripe)) return std::nullopt;
    stripe = part->stripe;
  }
  if (stripe == 0) return std::nullopt;
  return Layout{stripe, 1, 0};
}

}  // namespace

std::optional<Layout> ceph_layout(std::string_view text) {
  const auto unit = take_number(text, "stripe_unit="), count = take_number(text, "stripe_count="),
             object = take_number(text, "object_size=");
  if (!unit || !count || !object) return std::nullopt;
  if (*unit == 0 || *count == 0 || *object == 0 || *object % *unit != 0) return std::nullopt;
  return Layout{*count == 1 ? *object : *unit, *count, 0};
}

std::optional<Layout> lustre_layout(std::string_view bytes) {
  if (bytes.size() < kHead) return std::nullopt;
  const Numbers numbers(bytes, bytes.front() == '\x0b');
  if (numbers.at(0, 4) == kComposite) return composite_layout(bytes, numbers);
  const auto plain = plain_layout(numbers);
  if (!plain || (plain->pattern & ~kOverstriped) != kRaid0) return std::nullopt;
  if (plain->stripe == 0 || plain->count == 0) return std::nullopt;
  if (bytes.size() < plain->objects + plain->count * kObject) return std::nullopt;
  return Layout{plain->stripe, plain->count, numbers.at(plain->objects + kIndex, 4)};
}

}  // namespace forebay::posix
