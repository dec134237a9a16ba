// Reads and writes around the page cache (O_DIRECT), of any alignment. Blocking, on the calling
// thread; any thread.
//
// Writes: whole blocks go directly. What covers a block in part (an edge) goes through the page
// cache, and is then written out and dropped from it before the write ends. So the kernel's inode
// lock keeps writers of one block apart, a file gets its exact size, no right to read is needed,
// and a crash leaves no half-modified block: a read-modify-write of our own could give none of
// these. Direct and cached access never meet in one block, except where requests overlap.
//
// Reads are always direct, of whole blocks around what is wanted, so nothing stale is ever seen. At
// the end of file a direct read stops within a block, or at one.
//
// Memory that is not aligned is staged through buffers of kStage bytes: one at a time for a call.
#pragma once

#include <sys/uio.h>

#include <vector>

#include "core/buffer_pool.h"
#include "core/counters.h"
#include "core/extents.h"
#include "core/memory.h"

namespace forebay::posix {

inline constexpr uint64_t kStage = 128_KiB;
inline constexpr uint64_t kMemoryUnit = 512;  // what devices ask of addresses

struct DirectFile {
  int direct;    // opened with O_DIRECT
  int buffered;  // the same file without
};

struct DirectParts {
  uint64_t block = 4_KiB;  // a power of two: of the file system and of the page cache
  BufferPool& staging;     // buffers of kStage; more are made for calls that find none
  Counter& calls;
  Counter& edges;
  Counter& staged;
};

// As read_list() and write_list() (posix_io.h). EINVAL: the file system refuses direct access;
// then what was asked for has to be done without.
Result<uint64_t> read_direct(DirectFile fds, const Extents& file, const Memory& memory,
                             const DirectParts& parts);
Result<uint64_t> write_direct(DirectFile fds, const Extents& file, const Memory& memory,
                              const DirectParts& parts);

constexpr uint64_t round_down(uint64_t n, uint64_t block) {
  return n & ~(block - 1);
}
constexpr uint64_t round_up(uint64_t n, uint64_t block) {
  return round_down(n + block - 1, block);
}

// The pieces of memory, if they are at most `most` and each can be used directly.
bool aligned_pieces(const Memory& memory, uint64_t block, size_t most, std::vector<iovec>& pieces);

}  // namespace forebay::posix
