#include "client/fork_guard.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "core/assert.h"
#include "core/result.h"

namespace forebay {

namespace {

size_t page_size() {
  return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

ForkGuard::ForkGuard() {
  void* page =
      ::mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FOREBAY_ASSERT(page != MAP_FAILED,
                 fmt::format("no page for the fork guard: {}", errno_name(errno)));
  const int rc = ::madvise(page, page_size(), MADV_WIPEONFORK);
  FOREBAY_ASSERT(rc == 0, fmt::format("the kernel lacks MADV_WIPEONFORK: {}", errno_name(errno)));
  word_ = new (page) std::atomic<int>(1);
}

ForkGuard::~ForkGuard() {
  ::munmap(word_, page_size());
}

}  // namespace forebay
