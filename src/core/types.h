// Strong 64-bit types for places and sizes in files.
//
// Offset is a place, Length is a size; mixing them up does not compile. Both are unsigned and at
// most kMaxOffset (the kernel's off_t), which every decoder checks before it makes one.
#pragma once

#include <compare>
#include <cstdint>

namespace forebay {

struct Length {
  uint64_t value = 0;

  constexpr Length() = default;
  constexpr explicit Length(uint64_t v) : value(v) {}
  constexpr auto operator<=>(const Length&) const = default;
  constexpr explicit operator bool() const { return value != 0; }
  constexpr Length operator+(Length o) const { return Length(value + o.value); }
  constexpr Length operator-(Length o) const { return Length(value - o.value); }
  constexpr Length& operator+=(Length o) { return value += o.value, *this; }
  constexpr Length& operator-=(Length o) { return value -= o.value, *this; }
};

struct Offset {
  uint64_t value = 0;

  constexpr Offset() = default;
  constexpr explicit Offset(uint64_t v) : value(v) {}
  constexpr auto operator<=>(const Offset&) const = default;
  constexpr Offset operator+(Length n) const { return Offset(value + n.value); }
  constexpr Offset operator-(Length n) const { return Offset(value - n.value); }
  constexpr Length operator-(Offset o) const { return Length(value - o.value); }
  constexpr Offset& operator+=(Length n) { return value += n.value, *this; }
};

inline constexpr uint64_t kMaxOffset = INT64_MAX;

constexpr uint64_t operator""_KiB(unsigned long long v) {
  return v << 10;
}
constexpr uint64_t operator""_MiB(unsigned long long v) {
  return v << 20;
}
constexpr uint64_t operator""_GiB(unsigned long long v) {
  return v << 30;
}

}  // namespace forebay
