// When a read should go by way of a buffer of our own, and that buffer.
//
// Some processors copy many times slower if the target lies a few bytes (less than 32) behind the
// source, modulo 4096: they take the stores for ones that the next loads depend on. That is how the
// kernel copies out of the page cache into memory of glibc's malloc(), which begins 16 bytes into a
// page whenever it is large: 2.4 GB/s instead of 13 GB/s (AMD EPYC). By way of a buffer that lies
// elsewhere in its page it is 8 to 9 GB/s. Whether this processor does so is measured once.
#pragma once

#include "core/extents.h"
#include "core/memory.h"

namespace forebay::posix {

class ReadStage {
 public:
  static constexpr uint64_t kBytes = 256_KiB;
  // Kept as long as the thread lives. The same, but that the second begins with a page.
  static std::byte* of_thread();
  static std::byte* pages_of_thread();
};

// Would the kernel's copy of this read be a slow one?
bool copied_slowly(const Extents& file, const Memory& memory);

}  // namespace forebay::posix
