#include "client/gather_room.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/log.h"
#include "transport/shared_shortcut.h"

namespace forebay {

namespace {

// Who writes for others would be ended for what they may and he may not.
bool may_write_anywhere() {
  rlimit most{};
  return ::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur == RLIM_INFINITY;
}

}  // namespace

std::shared_ptr<GatherRoom> GatherRoom::enter(Fd handed, std::shared_ptr<GatherRoom> before) {
  struct stat st;
  if (!handed || !may_write_anywhere() || ::fstat(handed.get(), &st) != 0) return nullptr;
  if (before && before->number_ == st.st_ino) return before;
  auto pages = posix::GatheredWrites::space() <= kGatherSpace
                   ? SharedPages::adopt(std::move(handed), kGatherSpace)
                   : Error(EINVAL);
  if (!pages) {
    log::debug("no memory to gather writes in: {}", pages.error().message());
    return nullptr;
  }
  (*pages)->drop_descriptor();
  // By faults of reads, 16 pages at a time where they are there already: a tenth of the cost.
  const std::span<std::byte> bytes = (*pages)->bytes();
  ::madvise(bytes.data(), bytes.size(), MADV_POPULATE_READ);
  return std::shared_ptr<GatherRoom>(new GatherRoom(std::move(*pages), st.st_ino));
}

}  // namespace forebay
