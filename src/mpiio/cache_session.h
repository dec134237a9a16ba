// CacheSession: a part of a RealmCache with its lock held and the file under it, for one stretch of
// a call or one flush. Here bytes move: between pages and the Store, pages and the caller's memory,
// and around the pages.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "core/extents.h"
#include "mpiio/cache_part.h"

namespace forebay::mpiio {

// The file under the cache, as one rank reaches it. Memory: absolute addresses. Called with a part
// locked, so it must not call the cache.
class Backing {
 public:
  virtual ~Backing() = default;
  // As of a Store: short only at the end of file; a write is whole, or an error with done().
  virtual Result<uint64_t> read(Extents file, Extents memory) = 0;
  virtual Result<void> write(Extents file, Extents memory) = 0;
  virtual Result<uint64_t> size() = 0;
};

// Bytes of a call that lie in one page.
struct CachePiece {
  uint64_t file;
  uint64_t memory;
  uint32_t length;
  uint64_t stream;  // its place in the call's stream

  std::byte* address() const { return reinterpret_cast<std::byte*>(memory); }
};

// May a call take pages for what is not there yet? Collective calls do, each aggregator in its own
// part. Independent ones do not: they would fill the cache with what nobody shares.
enum class Allocate : uint8_t { no, yes };

class CacheSession {
 public:
  CacheSession(Backing& backing, CachePart& part, const CacheShape& shape)
      : backing_(backing), part_(part), shape_(shape), lock_(part.lock()) {
    part.begin_operation();
  }

  // Errors: done() counts in the call's stream.
  Result<void> write(const std::vector<CachePiece>& pieces, Allocate allocate);
  // Every byte of the pieces must be in the file.
  Result<void> read(const std::vector<CachePiece>& pieces, Allocate allocate);
  // Everything dirty goes to the Store.
  Result<void> write_back();

 private:
  using Slot = CachePart::Slot;
  struct RunList;
  struct Source;

  uint64_t page_of(const CachePiece& piece) const { return piece.file / shape_.page_size; }
  uint32_t within(const CachePiece& piece) const {
    return static_cast<uint32_t>(piece.file % shape_.page_size);
  }
  bool fits(const std::vector<CachePiece>& pieces);
  bool takes(const CachePiece& piece, Allocate allocate) const;
  Slot* find(uint64_t page);
  Slot* obtain(uint64_t page);
  void make_room();

  Result<void> write_batch(RunList& list, std::vector<Slot*>& slots);
  Result<void> write_around(const std::vector<CachePiece>& pieces);
  Result<void> write_direct(const std::vector<CachePiece>& pieces);
  Result<void> fill(std::vector<Slot*> slots);
  Result<void> fill_batch(std::span<Slot* const> slots);
  Result<void> read_direct(std::vector<CachePiece> pieces);

  void put(Slot& slot, const CachePiece& piece);
  void get(const Source& source, const CachePiece& piece) const;
  void merge(Slot& slot, const std::byte* from);

  Backing& backing_;
  CachePart& part_;
  const CacheShape& shape_;
  std::lock_guard<FutexLock> lock_;
  bool full_ = false;  // no page could be taken
};

}  // namespace forebay::mpiio
