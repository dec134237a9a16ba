#include "mpiio/cache_session.h"

#include <algorithm>
#include <cstring>

namespace forebay::mpiio {
namespace {

// Of one request to the Store. Larger ones gain nothing, and what is staged is bounded by it.
constexpr uint64_t kMostBytes = 4_MiB;
constexpr size_t kMostRuns = 32768;

bool lower_page(const CachePart::Slot* a, const CachePart::Slot* b) {
  return a->page < b->page;
}

}  // namespace

// The file's and the memory's side of a request.
struct CacheSession::RunList {
  std::vector<Extent> file, memory;
  uint64_t bytes = 0;

  void add(uint64_t at, const void* address, uint64_t length) {
    file.push_back({Offset(at), Length(length)});
    memory.push_back({Offset(reinterpret_cast<uintptr_t>(address)), Length(length)});
    bytes += length;
  }
  static RunList of(const std::vector<CachePiece>& pieces) {
    RunList list;
    for (const CachePiece& piece : pieces) list.add(piece.file, piece.address(), piece.length);
    return list;
  }
  bool full() const { return bytes >= kMostBytes || file.size() >= kMostRuns; }

  Result<uint64_t> read(Backing& backing) && {
    return send([&](Extents f, Extents m) { return backing.read(std::move(f), std::move(m)); });
  }
  Result<void> write(Backing& backing) && {
    return send([&](Extents f, Extents m) { return backing.write(std::move(f), std::move(m)); });
  }

 private:
  template <class Fn>
  auto send(Fn&& fn) -> decltype(fn(Extents(), Extents())) {
    auto f = Extents::make(std::move(file));
    if (!f) return f.error();
    auto m = Extents::make(std::move(memory));
    if (!m) return m.error();
    return fn(std::move(*f), std::move(*m));
  }
};

// Where a piece comes from: its page, or the Store; both, if only the page's dirty bytes are good.
struct CacheSession::Source {
  Slot* slot = nullptr;
  bool whole = false;  // the page has all of it, at the latest when it is filled
};

Result<void> CacheSession::write(const std::vector<CachePiece>& pieces, Allocate allocate) {
  if (allocate == Allocate::yes && !fits(pieces)) return write_around(pieces);
  std::vector<CachePiece> direct;
  Slot* slot = nullptr;
  for (const CachePiece& piece : pieces) {
    if (!slot || slot->page != page_of(piece))
      slot = takes(piece, allocate) ? obtain(page_of(piece)) : find(page_of(piece));
    if (slot) {
      put(*slot, piece);
      part_.add_dirty(*slot, within(piece), within(piece) + piece.length);
    } else {
      direct.push_back(piece);
    }
  }
  return write_direct(direct);
}

// All pieces around the pages, which are told afterwards.
Result<void> CacheSession::write_around(const std::vector<CachePiece>& pieces) {
  auto result = write_direct(pieces);
  const uint64_t done = result ? UINT64_MAX : result.error().done();
  for (CachePiece piece : pieces) {
    if (piece.stream >= done) break;
    piece.length = static_cast<uint32_t>(std::min<uint64_t>(piece.length, done - piece.stream));
    Slot* const slot = part_.find(page_of(piece));
    if (!slot) continue;
    put(*slot, piece);
    part_.dirty(*slot).remove(within(piece), within(piece) + piece.length);
  }
  return result;
}

Result<void> CacheSession::read(const std::vector<CachePiece>& pieces, Allocate allocate) {
  if (allocate == Allocate::yes && !fits(pieces)) allocate = Allocate::no;
  std::vector<Source> sources;
  std::vector<Slot*> unfilled;
  std::vector<CachePiece> direct;
  for (const CachePiece& piece : pieces) {
    Slot* slot = sources.empty() ? nullptr : sources.back().slot;
    if (!slot || slot->page != page_of(piece))
      slot = takes(piece, allocate) ? obtain(page_of(piece)) : find(page_of(piece));
    if (slot) part_.pin(*slot);
    const bool good = slot && (slot->filled || part_.dirty(*slot).covers(
                                                   within(piece), within(piece) + piece.length));
    sources.push_back({slot, good || (slot && allocate == Allocate::yes)});
    if (!sources.back().whole)
      direct.push_back(piece);
    else if (!good)
      unfilled.push_back(slot);
  }
  if (auto ok = fill(std::move(unfilled)); !ok) return ok;
  if (auto ok = read_direct(std::move(direct)); !ok) return ok;
  for (size_t i = 0; i < pieces.size(); ++i) get(sources[i], pieces[i]);
  return {};
}

// Do the pages that the pieces would take leave half of the part to others? Counted too high where
// pieces come back to a page.
bool CacheSession::fits(const std::vector<CachePiece>& pieces) {
  uint64_t count = 0, last = UINT64_MAX;
  for (const CachePiece& piece : pieces) {
    if (page_of(piece) == last) continue;
    last = page_of(piece);
    if (!part_.find(last)) ++count;
  }
  return count <= shape_.pages() / 2;
}

bool CacheSession::takes(const CachePiece& piece, Allocate allocate) const {
  if (allocate == Allocate::no) return false;
  if (piece.length != shape_.page_size) return true;
  return !part_.streaming() && (!shape_.patient || part_.came_before(page_of(piece)));
}

CachePart::Slot* CacheSession::find(uint64_t page) {
  Slot* const slot = part_.find(page);
  if (!slot) return nullptr;
  slot->used = true;
  part_.count_hit();
  return slot;
}

// Finds it or takes one, for which others may have to be written back. Once that has failed it only
// finds, so that all pieces of one page go the same way.
CachePart::Slot* CacheSession::obtain(uint64_t page) {
  if (Slot* const slot = find(page)) return slot;
  if (full_) return nullptr;
  Slot* slot = part_.take(page);
  if (!slot) {
    make_room();
    slot = part_.take(page);
  }
  full_ = slot == nullptr;
  return slot;
}

// All at once, because neighbours make one request: a page at a time would be as many requests as
// pages.
void CacheSession::make_room() {
  if (auto ok = write_back(); !ok) part_.keep(ok.error());
}

Result<void> CacheSession::write_back() {
  std::vector<Slot*> slots, batch;
  part_.each([&](Slot& slot) {
    if (slot.dirty.any()) slots.push_back(&slot);
  });
  std::sort(slots.begin(), slots.end(), lower_page);
  Result<void> result;
  RunList list;
  for (Slot* slot : slots) {
    const std::byte* const bytes = part_.bytes(*slot);
    part_.dirty(*slot).each_run([&](uint32_t from, uint32_t to) {
      list.add(slot->page * shape_.page_size + from, bytes + from, to - from);
    });
    batch.push_back(slot);
    if (!list.full() && slot != slots.back()) continue;
    if (auto ok = write_batch(list, batch); !ok && result) result = std::move(ok);
  }
  if (result) part_.set_dirty_end(0);
  return result;
}

Result<void> CacheSession::write_batch(RunList& list, std::vector<Slot*>& slots) {
  auto result = std::exchange(list, {}).write(backing_);
  if (result) {
    for (Slot* slot : slots) {
      slot->filled = slot->filled || part_.dirty_throughout(*slot);
      part_.dirty(*slot).clear();
    }
  }
  slots.clear();
  return result;
}

Result<void> CacheSession::fill(std::vector<Slot*> slots) {
  std::sort(slots.begin(), slots.end(), lower_page);
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  const size_t most = std::max<uint64_t>(1, kMostBytes / shape_.page_size);
  for (size_t i = 0; i < slots.size(); i += most) {
    const size_t count = std::min(most, slots.size() - i);
    if (auto ok = fill_batch(std::span(slots).subspan(i, count)); !ok) return ok;
  }
  return {};
}

// Whole pages; those with dirty bytes by way of a staging buffer. What lies beyond the Store's end
// is zeros: if it lies before the file's end, by data that is dirty elsewhere, that is what it is.
Result<void> CacheSession::fill_batch(std::span<Slot* const> slots) {
  const auto dirty =
      std::count_if(slots.begin(), slots.end(), [](const Slot* slot) { return slot->dirty.any(); });
  std::vector<std::byte> staging(static_cast<uint64_t>(dirty) * shape_.page_size);
  std::byte* staged = staging.data();
  std::vector<std::byte*> targets;
  RunList list;
  for (const Slot* slot : slots) {
    targets.push_back(slot->dirty.any() ? std::exchange(staged, staged + shape_.page_size)
                                        : part_.bytes(*slot));
    list.add(slot->page * shape_.page_size, targets.back(), shape_.page_size);
  }
  auto count = std::move(list).read(backing_);
  if (!count) return count.error();
  uint64_t left = *count;
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint64_t there = std::min(left, shape_.page_size);
    left -= there;
    std::memset(targets[i] + there, 0, shape_.page_size - there);
    if (slots[i]->dirty.any()) merge(*slots[i], targets[i]);
    slots[i]->filled = true;
  }
  return {};
}

void CacheSession::merge(Slot& slot, const std::byte* from) {
  std::byte* const to = part_.bytes(slot);
  uint64_t at = 0;
  part_.dirty(slot).each_run([&](uint32_t begin, uint32_t end) {
    std::memcpy(to + at, from + at, begin - at);
    at = end;
  });
  std::memcpy(to + at, from + at, shape_.page_size - at);
}

void CacheSession::put(Slot& slot, const CachePiece& piece) {
  std::memcpy(part_.bytes(slot) + within(piece), piece.address(), piece.length);
}

void CacheSession::get(const Source& source, const CachePiece& piece) const {
  if (!source.slot) return;
  Slot& slot = *source.slot;
  if (source.whole) {
    std::memcpy(piece.address(), part_.bytes(slot) + within(piece), piece.length);
    return;
  }
  const uint32_t low = within(piece), high = low + piece.length;
  const std::byte* const bytes = part_.bytes(slot);
  part_.dirty(slot).each_run([&](uint32_t from, uint32_t to) {
    from = std::max(from, low);
    to = std::min(to, high);
    if (from < to) std::memcpy(piece.address() + (from - low), bytes + from, to - from);
  });
}

Result<void> CacheSession::write_direct(const std::vector<CachePiece>& pieces) {
  if (pieces.empty()) return {};
  auto result = RunList::of(pieces).write(backing_);
  if (result) return result;
  // From bytes of the list to bytes of the call's stream.
  uint64_t done = result.error().done();
  for (const CachePiece& piece : pieces) {
    if (done < piece.length) return std::move(result).error().with_done(piece.stream + done);
    done -= piece.length;
  }
  const CachePiece& last = pieces.back();
  return std::move(result).error().with_done(last.stream + last.length);
}

// Every byte is in the file, so what the Store does not have is a hole before data that is dirty.
// In rising order: the Store stops at the first byte that it does not have.
Result<void> CacheSession::read_direct(std::vector<CachePiece> pieces) {
  if (pieces.empty()) return {};
  std::sort(pieces.begin(), pieces.end(),
            [](const CachePiece& a, const CachePiece& b) { return a.file < b.file; });
  auto count = RunList::of(pieces).read(backing_);
  if (!count) return count.error();
  uint64_t left = *count;
  for (const CachePiece& piece : pieces) {
    const uint64_t there = std::min<uint64_t>(left, piece.length);
    left -= there;
    std::memset(piece.address() + there, 0, piece.length - there);
  }
  return {};
}

}  // namespace forebay::mpiio
