// PayloadCursor: walks the memory of a payload in stream order, as iovecs for the kernel. Memory in
// pieces too small for that is `fine`: it is better copied through a buffer than described.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>

#include "core/extents.h"
#include "core/memory.h"

namespace forebay {

class PayloadCursor {
 public:
  PayloadCursor() = default;
  explicit PayloadCursor(Memory memory) { reset(std::move(memory)); }
  PayloadCursor(const PayloadCursor&) = delete;

  void reset(Memory memory);
  uint64_t left() const { return left_; }
  bool fine() const { return fine_; }

  struct Described {
    size_t count = 0;  // of iovecs
    uint64_t bytes = 0;
  };
  // What comes next, at most `most` bytes; moves nothing.
  Described describe(std::span<iovec> out, uint64_t most) const;
  void advance(uint64_t n);

  // Copies as much as both sides hold, moves past it and returns how much it was.
  uint64_t fill(std::span<const std::byte> from);
  uint64_t drain(std::span<std::byte> to);

 private:
  template <class Fn>
  uint64_t walk(uint64_t most, Fn&& fn);

  Memory memory_;
  std::byte* at_ = nullptr;  // contiguous memory needs no more than this and left_
  std::optional<ExtentCursor> pieces_;
  uint64_t left_ = 0;
  bool fine_ = false;
};

}  // namespace forebay
