// Numbers as little-endian bytes, at any alignment. On a little-endian machine these are plain
// loads and stores.
#pragma once

#include <concepts>
#include <cstddef>

namespace forebay::wire {

template <std::unsigned_integral T>
void put_number(T value, std::byte* to) {
  for (size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T get_number(const std::byte* from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(from[i]) << (8 * i);
  return value;
}

}  // namespace forebay::wire
