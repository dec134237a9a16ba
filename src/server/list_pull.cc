#include "server/list_pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "wire/codec.h"

namespace forebay::server {

// A block lands in place because memory and wire agree on it: two little-endian 64-bit numbers.
static_assert(sizeof(Extent) == wire::kBlockBytes && std::is_trivially_copyable_v<Extent>);
static_assert(std::endian::native == std::endian::little);

uint64_t ListPull::bytes() const {
  return announced_.blocks * wire::kBlockBytes;
}

Result<Extents> ListPull::reserved() const {
  return Extents::make({announced_.bounds}, announced_.loops);
}

void ListPull::allocate() {
  blocks_.resize(announced_.blocks);
}

ListPull::Piece ListPull::next(uint64_t most) const {
  return {landed_, static_cast<uint32_t>(std::min(most, bytes() - landed_))};
}

Memory ListPull::landing(const Piece& piece) {
  return Memory::of(
      std::as_writable_bytes(std::span(blocks_)).subspan(piece.position, piece.length));
}

Result<Extents> ListPull::take() {
  FOREBAY_ASSERT(complete());
  const Extent& bounds = announced_.bounds;
  for (const Extent& block : blocks_) {
    const bool fits = block.offset >= bounds.offset && block.length <= bounds.length &&
                      block.offset - bounds.offset <= bounds.length - block.length;
    if (!fits && !block.empty()) {
      return Error(EINVAL, fmt::format("block {}+{} of the list lies outside its bounds {}+{}",
                                       block.offset.value, block.length.value, bounds.offset.value,
                                       bounds.length.value));
    }
  }
  Result<Extents> made = Extents::make(std::move(blocks_), std::move(announced_.loops));
  if (made && made->total() != announced_.total) {
    return Error(EINVAL, fmt::format("the list holds {} bytes, the request said {}",
                                     made->total().value, announced_.total.value));
  }
  return made;
}

}  // namespace forebay::server
