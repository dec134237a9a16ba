#include "mpiio/external32.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace forebay::mpiio {
namespace {

constexpr bool kLittle = std::endian::native == std::endian::little;

Error too_large() {
  return Error(ERANGE, "external32: a value does not fit into the type on the other side");
}

void swap(const std::byte* from, std::byte* to, uint32_t bytes) {
  if constexpr (kLittle)
    std::reverse_copy(from, from + bytes, to);
  else
    std::memcpy(to, from, bytes);
}

template <class Number>
void swap_all(const std::byte* from, std::byte* to, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i, from += sizeof(Number), to += sizeof(Number)) {
    Number value;
    std::memcpy(&value, from, sizeof value);
    if constexpr (!kLittle)
      ;
    else if constexpr (sizeof(Number) == 2)
      value = __builtin_bswap16(value);
    else if constexpr (sizeof(Number) == 4)
      value = __builtin_bswap32(value);
    else
      value = __builtin_bswap64(value);
    std::memcpy(to, &value, sizeof value);
  }
}

void swap_parts(uint32_t bytes, const std::byte* from, std::byte* to, uint64_t count) {
  switch (bytes) {
    case 1:
      std::memcpy(to, from, count);
      return;
    case 2:
      return swap_all<uint16_t>(from, to, count);
    case 4:
      return swap_all<uint32_t>(from, to, count);
    case 8:
      return swap_all<uint64_t>(from, to, count);
    default:
      for (; count > 0; --count, from += bytes, to += bytes) swap(from, to, bytes);
  }
}

// Of at most 8 bytes; a negative value has ones above.
uint64_t load(const std::byte* from, uint32_t bytes, bool big_endian, bool with_sign) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < bytes; ++i)
    value = value << 8 | static_cast<uint64_t>(from[big_endian ? i : bytes - 1 - i]);
  const uint32_t above = 64 - 8 * bytes;
  if (!with_sign || above == 0) return value;
  return static_cast<uint64_t>(static_cast<int64_t>(value << above) >> above);
}

void store(uint64_t value, std::byte* to, uint32_t bytes, bool big_endian) {
  for (uint32_t i = 0; i < bytes; ++i, value >>= 8)
    to[big_endian ? bytes - 1 - i : i] = static_cast<std::byte>(value);
}

struct Side {
  uint32_t bytes;
  bool big_endian;
};

// Integers of different sizes.
Result<void> resize_parts(Side from, const std::byte* in, Side to, std::byte* out, bool with_sign,
                          uint64_t count) {
  if (from.bytes > 8 || to.bytes > 8) return too_large();
  for (; count > 0; --count, in += from.bytes, out += to.bytes) {
    const uint64_t value = load(in, from.bytes, from.big_endian, with_sign);
    store(value, out, to.bytes, to.big_endian);
    if (load(out, to.bytes, to.big_endian, with_sign) != value) return too_large();
  }
  return {};
}

constexpr uint32_t kQuad = 16;  // bytes of the largest floating point number in a file

#if defined(__SIZEOF_FLOAT128__) && LDBL_MANT_DIG != 113
__extension__ using Quad = __float128;
constexpr size_t kOfLongDouble = LDBL_MANT_DIG == 64 ? 10 : sizeof(long double);  // no padding

Result<void> long_doubles_out(const std::byte* in, std::byte* out, uint64_t count) {
  for (; count > 0; --count, in += sizeof(long double), out += kQuad) {
    long double value;
    std::memcpy(&value, in, sizeof value);
    const Quad wide = value;
    std::byte bytes[kQuad];
    std::memcpy(bytes, &wide, kQuad);
    swap(bytes, out, kQuad);
  }
  return {};
}

Result<void> long_doubles_in(const std::byte* in, std::byte* out, uint64_t count) {
  for (; count > 0; --count, in += kQuad, out += sizeof(long double)) {
    std::byte bytes[kQuad];
    swap(in, bytes, kQuad);
    Quad wide;
    std::memcpy(&wide, bytes, kQuad);
    const auto value = static_cast<long double>(wide);
    const bool was_finite = wide - wide == 0;
    if (was_finite && !std::isfinite(value)) return too_large();
    std::memset(out, 0, sizeof value);
    std::memcpy(out, &value, kOfLongDouble);
  }
  return {};
}
#elif LDBL_MANT_DIG == 113
Result<void> long_doubles_out(const std::byte* in, std::byte* out, uint64_t count) {
  swap_parts(kQuad, in, out, count);
  return {};
}
Result<void> long_doubles_in(const std::byte* in, std::byte* out, uint64_t count) {
  swap_parts(kQuad, in, out, count);
  return {};
}
#else
Result<void> long_doubles_out(const std::byte*, std::byte*, uint64_t) {
  return Error(ERANGE, "external32: this machine's long double is of a kind that nobody knows");
}
Result<void> long_doubles_in(const std::byte*, std::byte*, uint64_t) {
  return Error(ERANGE, "external32: this machine's long double is of a kind that nobody knows");
}
#endif

bool only_swapped(const ExternalForm& form) {
  return form.kind == ExternalForm::Kind::swapped ||
         (form.kind != ExternalForm::Kind::long_double && form.native == form.external);
}

}  // namespace

Result<void> to_external(const ExternalForm& form, const std::byte* memory, std::byte* file,
                         uint64_t count) {
  const uint64_t parts = count * form.parts;
  if (form.kind == ExternalForm::Kind::long_double) return long_doubles_out(memory, file, parts);
  if (only_swapped(form)) return swap_parts(form.native, memory, file, parts), Result<void>();
  return resize_parts({form.native, !kLittle}, memory, {form.external, true}, file,
                      form.kind == ExternalForm::Kind::integer, parts);
}

Result<void> from_external(const ExternalForm& form, const std::byte* file, std::byte* memory,
                           uint64_t count) {
  const uint64_t parts = count * form.parts;
  if (form.kind == ExternalForm::Kind::long_double) return long_doubles_in(file, memory, parts);
  if (only_swapped(form)) return swap_parts(form.native, file, memory, parts), Result<void>();
  return resize_parts({form.external, true}, file, {form.native, !kLittle}, memory,
                      form.kind == ExternalForm::Kind::integer, parts);
}

}  // namespace forebay::mpiio
