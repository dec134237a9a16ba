// Listing a directory: getdents64 from the client's cookie on, on a descriptor opened as the
// caller.
#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "store/posix_ops.h"

namespace forebay::posix {

namespace {

// The kernel's struct linux_dirent64, whose name has no fixed length.
struct RawEntry {
  uint64_t inode;
  int64_t next;
  uint16_t bytes;
  uint8_t type;
};
constexpr size_t kNameAt = offsetof(RawEntry, type) + 1;

FileType type_of_entry(uint8_t type) {
  switch (type) {
    case DT_REG:
      return FileType::file;
    case DT_DIR:
      return FileType::directory;
    case DT_LNK:
      return FileType::symlink;
    case DT_FIFO:
      return FileType::fifo;
    case DT_SOCK:
      return FileType::socket;
    case DT_BLK:
      return FileType::block;
    case DT_CHR:
      return FileType::character;
  }
  return FileType::unknown;
}

Entry entry_of(const char* at, size_t& bytes) {
  RawEntry raw;
  std::memcpy(&raw, at, kNameAt);
  bytes = raw.bytes;
  Entry entry;
  entry.name = at + kNameAt;
  entry.cookie = static_cast<uint64_t>(raw.next);
  entry.file_id = raw.inode;
  entry.type = type_of_entry(raw.type);
  return entry;
}

}  // namespace

// Handle and attributes of an entry; without them if it is gone or on another mount.
void Operations::describe(const At& directory, Entry& entry) {
  Result<Fd> path = with_room([&] { return open_path(directory.fd(), entry.name); });
  if (!path) return;
  const Result<FileStat> stat = stat_of(path->get());
  if (!stat) return;
  Result<Handle> handle = handles_.make(path->get(), stat->id);
  if (!handle) return;
  entry.handle = std::move(*handle);
  entry.attr = stat->attr;
  entry.attr.fs_id = export_id_;
  entry.type = stat->attr.type;
  entry.file_id = stat->attr.file_id;
}

Result<Reply> Operations::readdir(At& at, Request& r) {
  if (at.file->type != FileType::directory) return Error(ENOTDIR);
  if (auto ok = identity_.become(*r.caller); !ok) return ok.error();
  Result<Fd> fd = with_room([&] { return reopen(at.fd(), at.file->type, O_RDONLY | O_DIRECTORY); });
  if (!fd) return std::move(fd).error();
  if (r.cookie && ::lseek(fd->get(), static_cast<off_t>(r.cookie), SEEK_SET) < 0)
    return failed("readdir: cookie");
  const bool plus = (r.flags & kFlagPlus) != 0;
  Reply reply;
  uint64_t room = r.length.value;
  alignas(RawEntry) char buffer[32768];
  for (;;) {
    const long n = ::syscall(SYS_getdents64, fd->get(), buffer, sizeof buffer);
    if (n < 0) return failed("getdents");
    if (n == 0) break;
    size_t bytes = 0;
    for (long i = 0; i < n; i += static_cast<long>(bytes)) {
      Entry entry = entry_of(buffer + i, bytes);
      if (entry.name == "." || entry.name == ".." || is_own_folder(at, entry.name)) continue;
      const uint64_t size = entry.name.size() + (plus ? kReaddirPlusEntry : kReaddirEntry);
      // One entry always fits: a reader with a small buffer gets on.
      if (!reply.entries.empty() && size > room) return reply;
      room -= std::min(room, size);
      if (plus) describe(at, entry);
      reply.entries.push_back(std::move(entry));
    }
  }
  reply.end = true;
  return reply;
}

}  // namespace forebay::posix
