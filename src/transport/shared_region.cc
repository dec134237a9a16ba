#include "transport/shared_region.h"

#include "transport/shared_offer.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <bit>

namespace forebay {

namespace {

constexpr uint64_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error failed(const char* what) {
  return Error(errno, std::string("shared memory: ") + what);
}

bool sane(const SharedRegion::Layout& l) {
  return std::has_single_bit(l.ring) && l.ring >= SharedRegion::kMinRing &&
         l.ring <= SharedRegion::kMaxRing && l.area % kPage == 0 &&
         l.area <= SharedRegion::kMaxArea;
}

}  // namespace

uint64_t SharedRegion::Layout::bytes() const {
  return kPage + 2 * uint64_t(ring) + area;
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::create(const Layout& layout) {
  FOREBAY_ASSERT(sane(layout));
  Fd memory(::memfd_create("forebay", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return failed("memfd_create");
  if (::ftruncate(memory.get(), static_cast<off_t>(layout.bytes())) != 0)
    return failed("ftruncate");
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return failed("sealing");
  auto region = map(std::move(memory), layout);
  // A forked child has a connection of its own, or none.
  if (region) ::madvise((*region)->base_, layout.bytes(), MADV_DONTFORK);
  return region;
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::adopt(Fd memory, const Layout& layout) {
  // The first question, because it asks no file system: a descriptor of a client's own file system
  // could make us wait for the client, even to close it.
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0) {
    Error error = failed("not a memfd");
    shared::close_elsewhere(std::move(memory));
    return error;
  }
  if (!sane(layout)) return Error(EINVAL, "shared memory: sizes that cannot be");
  if ((seals & F_SEAL_SHRINK) == 0) return Error(EINVAL, "shared memory: it is not sealed");
  // Huge pages are a memfd's too, and touching one that is not there is SIGBUS.
  struct statfs fs;
  if (::fstatfs(memory.get(), &fs) != 0) return failed("fstatfs");
  if (static_cast<unsigned long>(fs.f_type) != TMPFS_MAGIC) {
    return Error(EINVAL, "shared memory: not of ordinary pages");
  }
  struct stat st;
  if (::fstat(memory.get(), &st) != 0) return failed("fstat");
  if (static_cast<uint64_t>(st.st_size) != layout.bytes()) {
    return Error(EINVAL, "shared memory: of another size than was said");
  }
  return map(std::move(memory), layout);
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::map(Fd memory, const Layout& layout) {
  void* const at = ::mmap(nullptr, layout.bytes(), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (at == MAP_FAILED) return failed("mmap");
  return std::shared_ptr<SharedRegion>(
      new SharedRegion(std::move(memory), layout, static_cast<std::byte*>(at)));
}

SharedRegion::~SharedRegion() {
  ::munmap(base_, layout_.bytes());
}

std::span<std::byte> SharedRegion::ring_to_server() const {
  return {base_ + kPage, layout_.ring};
}

std::span<std::byte> SharedRegion::ring_to_client() const {
  return {base_ + kPage + layout_.ring, layout_.ring};
}

std::span<std::byte> SharedRegion::area() const {
  return {base_ + kPage + 2 * uint64_t(layout_.ring), layout_.area};
}

}  // namespace forebay
