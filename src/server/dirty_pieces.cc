#include "server/dirty_pieces.h"

#include <algorithm>

namespace forebay::server {
namespace {

// What a piece costs beside its bytes: its place in the map. A put may cut an older piece in two,
// so each counts twice.
constexpr uint64_t kPieceCost = 2 * (sizeof(Piece) + 64);

// More pieces than this are looked at by their bounds, and not copied one by one.
constexpr uint64_t kMostLooks = 4096;

constexpr uint64_t kLarge = 4_KiB;  // a piece that has a block of its own

}  // namespace

bool Budget::take(uint64_t bytes) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

uint64_t cost_of(uint64_t bytes, uint64_t pieces) {
  return bytes + pieces * kPieceCost;
}

std::shared_ptr<const Block> Block::copy_of(const Memory& memory, uint64_t pieces, Budget& budget) {
  const uint64_t size = memory.shape.total().value;
  if (size > budget.limit() || pieces > budget.limit() / kPieceCost) return nullptr;
  const uint64_t cost = cost_of(size, pieces);
  if (!budget.take(cost)) return nullptr;
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(size);
  copy_out(memory, {bytes.get(), size});
  return std::shared_ptr<const Block>(new Block(std::move(bytes), cost, budget));
}

// ---- The pieces of a file ----

DirtyPieces::Map::const_iterator DirtyPieces::holding(uint64_t offset) const {
  auto found = pieces_.upper_bound(offset);
  if (found == pieces_.begin()) return found;
  const auto before = std::prev(found);
  return before->second.file.end().value > offset ? before : found;
}

void DirtyPieces::put(Piece piece) {
  const uint64_t begin = piece.file.offset.value, end = piece.file.end().value;
  auto old = pieces_.lower_bound(begin);
  if (old != pieces_.begin()) {
    Piece& before = std::prev(old)->second;
    const uint64_t before_end = before.file.end().value;
    if (before_end > end) {  // what is left of it behind the new piece
      Piece tail = before;
      tail.data += end - before.file.offset.value;
      tail.file = {Offset(end), Length(before_end - end)};
      old = pieces_.emplace_hint(old, end, std::move(tail));
    }
    if (before_end > begin) before.file.length = piece.file.offset - before.file.offset;
  }
  while (old != pieces_.end() && old->first < end) {
    Piece over = std::move(old->second);
    old = pieces_.erase(old);
    if (over.file.end().value <= end) continue;
    const uint64_t cut = end - over.file.offset.value;
    over.data += cut;
    over.file = {Offset(end), over.file.length - Length(cut)};
    old = pieces_.emplace_hint(old, end, std::move(over));
  }
  pieces_.emplace_hint(old, begin, std::move(piece));
}

void DirtyPieces::erase(Offset at) {
  const auto erased = pieces_.erase(at.value);
  FOREBAY_ASSERT(erased == 1);
}

DirtyPieces DirtyPieces::take_runs(uint64_t least) {
  DirtyPieces taken;
  for (auto first = pieces_.begin(); first != pieces_.end();) {
    const uint64_t begin = first->first;
    uint64_t end = begin;
    auto next = first;
    while (next != pieces_.end() && next->first == end) end = (next++)->second.file.end().value;
    while (end - begin >= least && first != next) {
      taken.pieces_.insert(taken.pieces_.end(), pieces_.extract(first++));
    }
    first = next;
  }
  return taken;
}

bool DirtyPieces::touch(const Extent& extent) const {
  const auto found = holding(extent.offset.value);
  return found != pieces_.end() && found->first < extent.end().value;
}

bool DirtyPieces::touch(const Extents& extents) const {
  if (pieces_.empty() || extents.empty() || !touch(extents.bounds())) return false;
  if (extents.pieces() > kMostLooks) return true;
  for (ExtentCursor cursor(extents); !cursor.done();) {
    if (touch(cursor.take(extents.total()))) return true;
  }
  return false;
}

const Piece* DirtyPieces::at(uint64_t offset) const {
  const auto found = holding(offset);
  return found != pieces_.end() && found->first <= offset ? &found->second : nullptr;
}

uint64_t DirtyPieces::next(uint64_t offset) const {
  const auto found = pieces_.upper_bound(offset);
  return found == pieces_.end() ? UINT64_MAX : found->first;
}

std::optional<std::vector<Piece>> copy_pieces(const Request& write,
                                              const std::shared_ptr<const Writer>& writer,
                                              Budget& budget) {
  const uint64_t count = write.file.pieces(), total = write.file.total().value;
  const bool apart = count > 1 && total / count >= kLarge;
  std::shared_ptr<const Block> block;
  if (!apart) block = Block::copy_of(write.memory, count, budget);
  if (!apart && !block) return std::nullopt;
  std::vector<Piece> pieces;
  pieces.reserve(count);
  for (ExtentCursor cursor(write.file); !cursor.done();) {
    const Length position = cursor.position();
    const Extent file = cursor.take(write.file.total());
    if (apart) block = Block::copy_of(write.memory.slice(position, file.length), 1, budget);
    if (!block) return std::nullopt;
    pieces.push_back({file, block->data() + (apart ? 0 : position.value), block, writer});
  }
  return pieces;
}

std::optional<std::vector<PieceCopy>> gather(const DirtyPieces& newer, const DirtyPieces& older,
                                             const Extents& extents) {
  std::vector<PieceCopy> copies;
  if (extents.pieces() > kMostLooks) return std::nullopt;
  for (ExtentCursor cursor(extents); !cursor.done();) {
    const Extent want = cursor.current();
    const uint64_t at = want.offset.value;
    uint64_t end = want.end().value;
    const Piece* piece = newer.at(at);
    if (!piece) {
      end = std::min(end, newer.next(at));
      piece = older.at(at);
    }
    if (!piece || copies.size() >= kMostLooks) return std::nullopt;
    end = std::min(end, piece->file.end().value);
    copies.push_back({piece->block, piece->data + (at - piece->file.offset.value),
                      cursor.position().value, end - at});
    cursor.advance(Length(end - at));
  }
  return copies;
}

}  // namespace forebay::server
