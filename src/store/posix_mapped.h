// List I/O with many small pieces through a shared mapping of the file: a piece costs a copy
// instead of a system call, and processes that write one file at the same time do not wait for each
// other's inode lock. A page costs a fault the first time that it is touched, so pieces should be
// small and near each other; whatever is not goes by posix_io.h, and so does the rest of a list
// when a page cannot be had. So both give the same bytes, counts and errors.
//
// The kernel is asked for huge pages, of the mapping and in the page cache (MADV_HUGEPAGE; ext4 has
// them from 6.16 on, xfs for longer): a fault then serves 2 MiB instead of 4 KiB, and 8 processes
// that touch every page of a file fault some hundred times for what took a hundred thousand.
// Whether a file that is read has such pages is the business of whoever wrote it: a read that pays
// with them only counts the faults of its first MiB and goes by calls if they were many.
//
// Writes: the file ends where pwrite would have left it. A list that ends beyond the end of file
// has its blocks allocated first, without a change of size, then the size grows to its last byte in
// one step that never makes it smaller. A list inside the file first waits for whoever is making it
// longer: ext4 clears the rest of the old last page after it shows the new size, and would clear
// what is stored there in between (since Linux 6.13; four processes that wrote one new file met it
// once in 200 jobs). Inside the file a hole gets its block by the fault, as by pwrite: on a full
// disk that faults (posix_sigbus.h), and pwrite then says ENOSPC and how far it came. Modification
// times are the kernel's, which takes them when a page is first touched: within the request. Set-id
// bits are not cleared, so this is for processes that write their own files.
//
// A file that was cut short meanwhile, and a device that fails, are met likewise.
// Blocking; any thread. Memory: at most 320 KiB for the pieces, 68 MiB of address space.
#pragma once

#include <atomic>
#include <filesystem>

#include "core/counters.h"
#include "core/extents.h"
#include "core/memory.h"

namespace forebay::posix {

// Are new huge pages always worth having? To fill them takes as long as to fill the same bytes of
// small pages, unless their memory comes from a hypervisor that takes back what is free, which it
// does in pieces of that size and no smaller: then up to ten times as long. `balloons`: where the
// kernel shows its devices for that.
bool huge_pages_are_cheap(
    const std::filesystem::path& balloons = "/sys/bus/virtio/drivers/virtio_balloon");

// Files are often read as the one before was: after a read that looked at its faults and found them
// too many, so many more, whose pieces are as far apart or further, go by calls without a look. Any
// thread.
struct LooksInVain {
  std::atomic<unsigned> without{0};
  std::atomic<uint64_t> apart{0};
};

// Whether writes shall make new huge pages. Where they are not always cheap it depends on when the
// memory that the kernel has free was used last: a moment ago, and they cost a third of small ones;
// longer ago, and they cost five times as much. So one is tried, and the time that it takes says
// how the next are made: after a dear one the next 128 MiB, and then twice as many each time, have
// small pages. Any thread.
class HugePages {
 public:
  explicit HugePages(bool always) : always_(always) {}
  bool always() const { return always_; }
  // Shall a window of so many bytes try them?
  bool worth_trying(uint64_t bytes);
  // What one took, in ns of this thread's processor. Is it dear?
  bool dear(uint64_t time);

 private:
  static constexpr uint64_t kFirstRest = 128_MiB, kMostRest = 4096_MiB;
  const bool always_;
  std::atomic<uint64_t> without_{0};  // bytes, from now on
  std::atomic<uint64_t> rest_{kFirstRest};
};

struct MappedParts {
  uint64_t most_piece;  // larger ones on average go by system calls
  Counter& calls;       // that move bytes
  Counter& mapped;      // steps that went through a mapping
  Counter& faults;      // such steps that a fault ended
  LooksInVain& looks;
  HugePages& huge;
};

// Is the list such that mapping pays, by its numbers?
bool worth_mapping(const Extents& file, uint64_t most_piece);

// As read_list() and write_list() (posix_io.h). The descriptor of a write must allow reading too.
Result<uint64_t> read_mapped(int fd, const Extents& file, const Memory& memory,
                             const MappedParts& parts);
Result<uint64_t> write_mapped(int fd, const Extents& file, const Memory& memory,
                              const MappedParts& parts);

}  // namespace forebay::posix
