// The memory side of a read or write: a base address and Extents relative to it. A null base makes
// the offsets absolute addresses, which is how scattered buffers (an iovec) are given.
// Whoever submits a request keeps the memory alive and untouched until it completes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/extents.h"

struct iovec;

namespace forebay {

struct Memory {
  std::byte* base = nullptr;
  Extents shape;

  static Memory of(std::span<std::byte> bytes);
  static Memory of(std::span<const std::byte> bytes);  // for writes, which never modify it
  static Result<Memory> of(std::span<const iovec> pieces);

  // By integers: an offset from a null pointer is not defined for pointers.
  std::byte* at(Offset o) const {
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(base) + o.value);
  }
  Memory slice(Length from, Length length) const { return {base, shape.slice(from, length)}; }
};

// Copies the stream of `from` to `to`, as far as the shorter one goes; returns the bytes copied.
uint64_t copy_out(const Memory& from, std::span<std::byte> to);
uint64_t copy_in(std::span<const std::byte> from, const Memory& to);

}  // namespace forebay
