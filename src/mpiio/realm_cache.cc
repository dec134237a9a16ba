#include "mpiio/realm_cache.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace forebay::mpiio {
namespace {

// Of one stretch, which bounds its lists and how long others wait.
constexpr size_t kMostPieces = 32768;
constexpr uint64_t kAlignment = 4096;

// Bytes of one part that follow each other in the stream of a call.
struct Stretch {
  uint32_t part = 0;
  std::vector<CachePiece> pieces;
};

// Cuts a call into stretches.
class Splitter {
 public:
  Splitter(const CacheShape& shape, const Extents& file, const Extents& memory, uint64_t most)
      : shape_(shape), file_(file), memory_(memory), left_(most) {}

  bool done() const { return left_ == 0; }
  Stretch next() {
    Stretch stretch{shape_.part_of(file_.current().offset), {}};
    uint64_t realm_begin = 0, realm_end = 0;
    while (left_ > 0 && stretch.pieces.size() < kMostPieces) {
      const Extent f = file_.current(), m = memory_.current();
      const uint64_t at = f.offset.value;
      if (at < realm_begin || at >= realm_end) {
        if (shape_.part_of(f.offset) != stretch.part) break;
        realm_begin = at / shape_.realm_size * shape_.realm_size;
        realm_end = realm_begin + shape_.realm_size;
      }
      const uint64_t length = std::min(
          {f.length.value, m.length.value, left_, shape_.page_size - at % shape_.page_size});
      stretch.pieces.push_back(
          {at, m.offset.value, static_cast<uint32_t>(length), file_.position().value});
      file_.advance(Length(length));
      memory_.advance(Length(length));
      left_ -= length;
    }
    return stretch;
  }

 private:
  const CacheShape& shape_;
  ExtentCursor file_, memory_;
  uint64_t left_;
};

// Where the pieces end in the file, as far as they are done.
uint64_t end_of(const std::vector<CachePiece>& pieces, uint64_t done) {
  uint64_t end = 0;
  for (const CachePiece& piece : pieces)
    if (piece.stream < done)
      end = std::max(end, piece.file + std::min<uint64_t>(piece.length, done - piece.stream));
  return end;
}

uint64_t head_space(uint64_t head) {
  return (head + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

uint64_t RealmCache::space(const CacheShape& shape) {
  return head_space(sizeof(Head)) + shape.parts * CachePart::space(shape);
}

void RealmCache::create(void* space, const CacheShape& shape) {
  FOREBAY_ASSERT(reinterpret_cast<uintptr_t>(space) % kAlignment == 0);
  FOREBAY_ASSERT(std::has_single_bit(shape.page_size) && shape.page_size >= 64 &&
                 shape.page_size <= 1_GiB);
  FOREBAY_ASSERT(shape.parts > 0 && shape.pages() >= 4 && shape.pages() < UINT32_MAX / 2);
  FOREBAY_ASSERT(shape.realm_size > 0 && shape.realm_size % shape.page_size == 0);
  (new (space) Head)->shape = shape;
}

RealmCache::RealmCache(void* space) : head_(static_cast<Head*>(space)) {
  auto* const first = static_cast<std::byte*>(space) + head_space(sizeof(Head));
  for (uint32_t i = 0; i < shape().parts; ++i)
    parts_.emplace_back(first + i * CachePart::space(shape()), shape());
}

Result<void> RealmCache::write(Backing& backing, const Extents& file, const Extents& memory,
                               Allocate allocate) {
  FOREBAY_ASSERT(file.total() == memory.total());
  Splitter splitter(shape(), file, memory, file.total().value);
  while (!splitter.done()) {
    const Stretch stretch = splitter.next();
    CachePart& part = parts_[stretch.part];
    CacheSession session(backing, part, shape());
    auto result = session.write(stretch.pieces, allocate);
    const uint64_t done = result ? UINT64_MAX : result.error().done();
    raise_known_end(std::max(end_of(stretch.pieces, done), part.dirty_end()));
    if (!result) return result;
  }
  return {};
}

Result<uint64_t> RealmCache::read(Backing& backing, const Extents& file, const Extents& memory,
                                  Allocate allocate) {
  FOREBAY_ASSERT(file.total() == memory.total());
  auto there = existing(backing, file);
  if (!there) return there;
  Splitter splitter(shape(), file, memory, *there);
  while (!splitter.done()) {
    const Stretch stretch = splitter.next();
    CacheSession session(backing, parts_[stretch.part], shape());
    if (auto ok = session.read(stretch.pieces, allocate); !ok) return ok.error();
  }
  return there;
}

Result<void> RealmCache::flush(Backing& backing, uint32_t part) {
  FOREBAY_ASSERT(part < parts_.size());
  CacheSession session(backing, parts_[part], shape());
  auto result = session.write_back();
  parts_[part].forget_passed();
  auto kept = parts_[part].take_kept();
  if (result && kept) return *std::move(kept);
  return result;
}

Result<void> RealmCache::flush(Backing& backing) {
  Result<void> result;
  for (uint32_t part = 0; part < parts_.size(); ++part)
    if (auto ok = flush(backing, part); !ok && result) result = std::move(ok);
  return result;
}

void RealmCache::drop() {
  for (CachePart& part : parts_) {
    std::lock_guard lock(part.lock());
    part.each([&](CachePart::Slot& slot) {
      slot.filled = part.dirty_throughout(slot);
      if (!slot.dirty.any()) part.release(slot);
    });
  }
  head_->known_end = dirty_end().value;
}

void RealmCache::truncate(Length size) {
  const uint64_t page_size = shape().page_size;
  for (CachePart& part : parts_) {
    std::lock_guard lock(part.lock());
    part.each([&](CachePart::Slot& slot) {
      const uint64_t begin = slot.page * page_size;
      if (begin >= size.value) return part.release(slot);
      if (begin + page_size <= size.value) return;
      const auto kept = static_cast<uint32_t>(size.value - begin);
      part.dirty(slot).remove(kept, static_cast<uint32_t>(page_size));
      std::memset(part.bytes(slot) + kept, 0, page_size - kept);
    });
    part.set_dirty_end(std::min(part.dirty_end(), size.value));
  }
  head_->known_end = size.value;
}

Offset RealmCache::dirty_end() const {
  uint64_t end = 0;
  for (const CachePart& part : parts_) end = std::max(end, part.dirty_end());
  return Offset(end);
}

// How many bytes of the stream come before the first that lies at the end of file or beyond.
Result<uint64_t> RealmCache::existing(Backing& backing, const Extents& file) {
  uint64_t end = head_->known_end;
  if (file.bounds().end().value > end) {
    auto size = backing.size();
    if (!size) return size;
    if (*size > end) {
      forget_tail(end);
      raise_known_end(*size);
      end = *size;
    }
  }
  if (file.bounds().end().value <= end) return file.total().value;
  ExtentCursor cursor(file);
  while (!cursor.done()) {
    const Extent piece = cursor.current();
    if (piece.end().value > end)
      return cursor.position().value + std::max(end, piece.offset.value) - piece.offset.value;
    cursor.advance(piece.length);
  }
  return file.total().value;
}

// The file has grown without us: zeros that stand beyond its former end are not what is there now.
void RealmCache::forget_tail(uint64_t end) {
  CachePart& part = parts_[part_of(Offset(end))];
  std::lock_guard lock(part.lock());
  CachePart::Slot* const slot = part.find(end / shape().page_size);
  if (slot) slot->filled = part.dirty_throughout(*slot);
}

void RealmCache::raise_known_end(uint64_t end) {
  uint64_t before = head_->known_end;
  while (before < end && !head_->known_end.compare_exchange_weak(before, end)) {
  }
}

}  // namespace forebay::mpiio
