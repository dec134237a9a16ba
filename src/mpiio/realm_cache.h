// RealmCache: what the aggregators of an open MPI file keep of their persistent realms (paper 5,
// section 3.4), in memory that every rank of the file maps. Written data may stay here until the
// next flush, what was read until the next drop. The paper leaves the keeping to the file system's
// client and so forbids independent calls; here the data lies where any rank reaches it unaided,
// and independent calls see it.
//
// Realms are dealt out cyclically from byte 0: byte x belongs to part (x / realm_size) % parts, one
// part for each aggregator. A part has a lock, a fixed number of pages and a table of which pages
// of the file they hold. While Store requests of a part are under way its lock is held: a write
// that goes around the pages and the flush of an older one never pass each other.
//
// Invariants
//  1. Never more memory than space(shape) says; memory that was never needed is never touched.
//  2. What is written back is exactly what was written here, byte by byte: what another program put
//     between them meanwhile stays.
//  3. Data leaves the cache only by a write that succeeded, or by truncate(). An error of a write
//     that nobody called for (to make room) is kept, and returned by the next flush of the part.
//  4. Every call locks one part at a time, so calls of several ranks never wait for each other in a
//     circle. A rank that dies while it holds a lock keeps it: its job ends with it.
//
// The file's size is the larger of the Store's and dirty_end().
//
// Who makes what: one rank calls create() on fresh memory (zeros), the others wait for that (a
// barrier), and each makes a RealmCache on it. Plain bytes without pointers; nothing to destroy.
// Threads: every call from any thread of any process, except where said.
#pragma once

#include <vector>

#include "core/extents.h"
#include "mpiio/cache_session.h"

namespace forebay::mpiio {

class RealmCache {
 public:
  static uint64_t space(const CacheShape& shape);
  // `space`: as many bytes, all 0, aligned to 4096, not in use yet.
  static void create(void* space, const CacheShape& shape);
  // On memory that create() was called on, by whichever process; must stay as long as this.
  explicit RealmCache(void* space);

  const CacheShape& shape() const { return head_->shape; }
  uint32_t part_of(Offset at) const { return shape().part_of(at); }

  // `memory`: absolute addresses, as many bytes as `file`. Pages that are there are used in any
  // case. What would take more than half of a part's pages, and whole pages of a stream that is
  // longer than the part, go around them.
  //
  // All of it, or an error whose done() bytes of the stream, from the start, are written.
  Result<void> write(Backing& backing, const Extents& file, const Extents& memory, Allocate);
  // How many bytes there were: short only at the end of file, as a Store's.
  Result<uint64_t> read(Backing& backing, const Extents& file, const Extents& memory, Allocate);

  // Everything dirty goes to the Store, in rising order and few requests. What fails stays dirty;
  // the rest is still written, and the first error returned. Parts may be flushed at the same time.
  Result<void> flush(Backing& backing, uint32_t part);
  Result<void> flush(Backing& backing);  // all, one after the other

  // Forgets what is not dirty: the next read sees the file. For MPI_File_sync, after a flush and
  // before the ranks go on.
  void drop();
  // The file has this size from now on: after the Store's was set, and before the ranks go on.
  void truncate(Length size);

  // Where the last byte ends that may not be in the Store yet; 0 if there is none.
  Offset dirty_end() const;

 private:
  struct Head {
    CacheShape shape;
    // Bytes before it are in the file: somebody wrote there, or the Store said so.
    std::atomic<uint64_t> known_end{0};
  };

  Result<uint64_t> existing(Backing& backing, const Extents& file);
  void raise_known_end(uint64_t end);
  void forget_tail(uint64_t end);

  Head* head_;
  std::vector<CachePart> parts_;
};

}  // namespace forebay::mpiio
