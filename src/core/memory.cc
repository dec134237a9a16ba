#include "core/memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

namespace forebay {

Memory Memory::of(std::span<std::byte> bytes) {
  return {bytes.data(), Extents(Extent{Offset(0), Length(bytes.size())})};
}

Memory Memory::of(std::span<const std::byte> bytes) {
  return of(std::span(const_cast<std::byte*>(bytes.data()), bytes.size()));
}

Result<Memory> Memory::of(std::span<const iovec> pieces) {
  std::vector<Extent> blocks;
  blocks.reserve(pieces.size());
  for (const iovec& v : pieces) {
    if (v.iov_len == 0) continue;  // its address may be anything
    blocks.push_back({Offset(reinterpret_cast<uintptr_t>(v.iov_base)), Length(v.iov_len)});
  }
  Result<Extents> shape = Extents::make(std::move(blocks));
  if (!shape) return std::move(shape).error().at("iovec");
  return Memory{nullptr, std::move(*shape)};
}

namespace {

// fn(piece in memory, its place in the stream, its length) over the first `most` bytes.
template <class Fn>
uint64_t for_each_piece(const Memory& memory, uint64_t most, Fn&& fn) {
  ExtentCursor cursor(memory.shape);
  while (!cursor.done() && cursor.position().value < most) {
    const uint64_t place = cursor.position().value;
    const Extent piece = cursor.take(Length(most - place));
    fn(memory.at(piece.offset), place, piece.length.value);
  }
  return cursor.position().value;
}

}  // namespace

uint64_t copy_out(const Memory& from, std::span<std::byte> to) {
  return for_each_piece(from, to.size(), [&](const std::byte* piece, uint64_t place, uint64_t n) {
    std::memcpy(to.data() + place, piece, n);
  });
}

uint64_t copy_in(std::span<const std::byte> from, const Memory& to) {
  return for_each_piece(to, from.size(), [&](std::byte* piece, uint64_t place, uint64_t n) {
    std::memcpy(piece, from.data() + place, n);
  });
}

}  // namespace forebay
