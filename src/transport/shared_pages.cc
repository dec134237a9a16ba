#include "transport/shared_pages.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "loop/marked.h"
#include "transport/shared_offer.h"

namespace forebay {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error failed(const char* what) {
  return Error(errno, std::string("shared memory: ") + what);
}

}  // namespace

Result<std::shared_ptr<SharedPages>> SharedPages::create(uint64_t bytes) {
  Fd memory(::memfd_create("forebay", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return failed("memfd_create");
  // The kernel would end a process that may not make files of this size.
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes) {
    return Error(EFBIG, "shared memory: larger than a file of this process may be (ulimit -f)");
  }
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return failed("sealing");
  const bool marked = mark_descriptor(memory.get());
  auto made = map(std::move(memory), bytes);
  if (made) (*made)->marked_ = marked;
  return made;
}

Result<std::shared_ptr<SharedPages>> SharedPages::adopt(Fd memory, uint64_t bytes) {
  // The first question, because it asks no file system: a descriptor of a client's own file system
  // could make us wait for the client, even to close it.
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0) {
    Error error = failed("not a memfd");
    shared::close_elsewhere(std::move(memory));
    return error;
  }
  if ((seals & F_SEAL_SHRINK) == 0) return Error(EINVAL, "shared memory: it is not sealed");
  // Huge pages are a memfd's too, and touching one that is not there is SIGBUS.
  struct statfs fs;
  if (::fstatfs(memory.get(), &fs) != 0) return failed("fstatfs");
  if (static_cast<unsigned long>(fs.f_type) != TMPFS_MAGIC) {
    return Error(EINVAL, "shared memory: not of ordinary pages");
  }
  struct stat st;
  if (::fstat(memory.get(), &st) != 0) return failed("fstat");
  if (static_cast<uint64_t>(st.st_size) != bytes) {
    return Error(EINVAL, "shared memory: of another size than was said");
  }
  return map(std::move(memory), bytes);
}

Result<std::shared_ptr<SharedPages>> SharedPages::map(Fd memory, uint64_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (at == MAP_FAILED) return failed("mmap");
  return std::shared_ptr<SharedPages>(
      new SharedPages(std::move(memory), {static_cast<std::byte*>(at), bytes}));
}

int SharedPages::descriptor() const {
  return !memory_ || (marked_ && !is_marked(memory_.get())) ? -1 : memory_.get();
}

void SharedPages::drop_descriptor() {
  if (descriptor() < 0) memory_.release();  // it is not ours to close
  memory_.reset();
}

SharedPages::~SharedPages() {
  drop_descriptor();
  ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace forebay
