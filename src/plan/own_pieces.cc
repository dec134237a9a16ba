#include "plan/own_pieces.h"

#include <algorithm>
#include <new>

#include "core/assert.h"

namespace forebay::plan {

// Without memory to note it, it is copied.
bool OwnPieces::take(uint64_t place, Extent memory) noexcept try {
  if (memory.length.value < least_) return false;
  pieces_.push_back({place, memory});
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool OwnPieces::has(uint64_t place) const {
  const auto found = std::lower_bound(pieces_.begin(), pieces_.end(), place,
                                      [](const Piece& p, uint64_t at) { return p.place < at; });
  return found != pieces_.end() && found->place == place;
}

Extents OwnPieces::memory(Extent buffer) const {
  std::vector<Extent> blocks;
  blocks.reserve(2 * pieces_.size() + 1);
  Offset at = buffer.offset;
  const auto copied_up_to = [&](Offset end) {
    if (at < end) blocks.push_back({at, end - at});
  };
  for (const Piece& piece : pieces_) {
    copied_up_to(buffer.offset + Length(piece.place));
    blocks.push_back(piece.memory);
    at = buffer.offset + Length(piece.place) + piece.memory.length;
  }
  copied_up_to(buffer.end());
  auto made = Extents::make(std::move(blocks));
  FOREBAY_ASSERT(made.has_value(), "memory that is none");
  return std::move(*made);
}

bool nobody_shares(std::span<const ViewPart> parts, std::span<const Extent> runs) {
  if (runs.empty()) return true;
  const Extent range{runs.front().offset, runs.back().end() - runs.front().offset};
  uint64_t once = 0, named = 0;
  for (const Extent& run : runs) once += run.length.value;
  for (const ViewPart& part : parts)
    if (!part.empty()) named += part.within(range).length.value;
  return named == once;
}

}  // namespace forebay::plan
