// List I/O on a descriptor: a file side against a memory side of another shape, in the fewest and
// cheapest system calls. Runs that are contiguous in the file go out as one preadv or pwritev, of
// up to IOV_MAX pieces of memory and kMostBytes; pieces that are contiguous on both sides are one,
// and memory in very small pieces goes by way of a buffer.
// Any thread.
#pragma once

#include "core/counters.h"
#include "core/extents.h"
#include "core/memory.h"

namespace forebay::posix {

// One call of 2 MiB or more into a fresh ext4 file was now and then 3 to 10 times dearer.
inline constexpr uint64_t kMostBytes = 1_MiB;

struct IoLimits {
  bool nowait = false;  // reads: EAGAIN instead of waiting for the device
  uint64_t block = 1;   // direct reads: a count that is no multiple of it is the end of file
  // Memory in smaller pieces, on average, goes by way of a buffer: what it costs to tell the kernel
  // of a piece.
  uint64_t crumb = 512;
};
// Of file systems that are not local. FUSE's requests take so many pages and no more (32 is usual),
// and each piece has pages of its own: a call of 1 MiB in pieces of 1.5 KiB was 30 requests, not 8.
inline constexpr uint64_t kCrumbOfOthers = 16_KiB;

// Moves bytes in the order of the stream. Returns the count: of a read it is short only at the end
// of file. An error of a write carries done().
Result<uint64_t> read_list(int fd, const Extents& file, const Memory& memory, Counter& calls,
                           IoLimits limits = {});
Result<uint64_t> write_list(int fd, const Extents& file, const Memory& memory, Counter& calls,
                            IoLimits limits = {});

}  // namespace forebay::posix
