// Whole files in memory: mappings, and programs and libraries that are run from a copy.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/fd.h"
#include "preload/serve.h"
#include "store/open_path.h"

namespace forebay::preload {
namespace {

constexpr size_t kPiece = 4 << 20;

// Reads until the memory is full or the file ends.
Result<uint64_t> fill(OpenFile& file, std::span<std::byte> to, uint64_t from) {
  uint64_t had = 0;
  while (had < to.size()) {
    const auto part = to.subspan(had, std::min(to.size() - had, kPiece));
    auto got = read_at(file, part, from + had);
    if (!got) return got;
    had += *got;
    if (*got < part.size()) break;
  }
  return had;
}

// A copy that nobody can write to, whatever they ask mprotect(2) for.
Result<Fd> read_only_copy(OpenFile& file, size_t size, uint64_t from) {
  const Fd memory(::memfd_create("forebay-map", MFD_CLOEXEC));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(size)) != 0) return Error(errno);
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return Error(errno);
  auto filled = fill(file, {static_cast<std::byte*>(at), size}, from);
  ::munmap(at, size);
  if (!filled) return std::move(filled).error();
  char name[64];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", memory.get());
  Fd reader(::open(name, O_RDONLY | O_CLOEXEC));
  if (!reader) return Error(errno);
  return reader;
}

Result<void*> map_private(OpenFile& file, void* at, size_t size, int protection, int flags,
                          uint64_t from) {
  // With a fixed address nothing may be replaced before the bytes are there.
  const int kept = flags & ~(MAP_TYPE | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE);
  void* const made =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kept | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return Error(errno);
  auto filled = fill(file, {static_cast<std::byte*>(made), size}, from);
  if (!filled) return ::munmap(made, size), std::move(filled).error();
  if (::mprotect(made, size, protection) != 0) {
    const int code = errno;
    return ::munmap(made, size), Error(code);
  }
  if (!(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))) return made;
  void* there = at;
  if (flags & MAP_FIXED_NOREPLACE)
    there = ::mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (there != MAP_FAILED) there = ::mremap(made, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
  if (there != MAP_FAILED) return there;
  const int code = errno;
  return ::munmap(made, size), Error(code);
}

}  // namespace

void* map(int fd, void* at, size_t size, int protection, int flags, off64_t from) {
  void* mapped = MAP_FAILED;
  run([&]() -> Result<int64_t> {
    const FileUse file(fd);
    if (!file || (file->flags() & O_PATH)) return Error(EBADF);
    if (file->shared->directory) return Error(ENODEV);
    if (!file->reads()) return Error(EACCES);
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    if (size == 0 || from < 0 || static_cast<size_t>(from) % page != 0) return Error(EINVAL);
    const size_t whole = (size + page - 1) / page * page;
    const auto start = static_cast<uint64_t>(from);
    if ((flags & MAP_TYPE) == MAP_PRIVATE) {
      auto made = map_private(*file, at, whole, protection, flags, start);
      if (!made) return std::move(made).error();
      mapped = *made;
      return 0;
    }
    auto reader = read_only_copy(*file, whole, start);
    if (!reader) return std::move(reader).error();
    mapped = ::mmap(at, whole, protection, flags, reader->get(), 0);
    if (mapped == MAP_FAILED) return Error(errno);
    return 0;
  });
  return mapped;
}

int copy(const Target& target) {
  return static_cast<int>(run([&]() -> Result<int64_t> {
    const int opened = target.fd >= 0 ? -1 : open_file(target, O_RDONLY | O_CLOEXEC, 0);
    if (target.fd < 0 && opened < 0) return Error(errno);
    struct Closing {
      int fd;
      ~Closing() {
        if (fd < 0) return;
        void* const file = Connection::get().shim().slots[fd].exchange(nullptr);
        ::close(fd);
        OpenFiles::get().drop(*static_cast<OpenFile*>(file));
      }
    } const closing{opened};
    const FileUse file(opened >= 0 ? opened : target.fd);
    if (!file) return Error(EBADF);
    Fd memory(::memfd_create("forebay-copy", MFD_CLOEXEC));
    if (!memory) return Error(errno);
    std::vector<std::byte> piece(kPiece);
    for (uint64_t at = 0;;) {
      auto got = read_at(*file, piece, at);
      if (!got) return std::move(got).error();
      if (*got == 0) break;
      if (::pwrite(memory.get(), piece.data(), *got, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(*got))
        return Error(ENOSPC);
      at += *got;
    }
    return memory.release();
  }));
}

}  // namespace forebay::preload
