#include "store/posix_sys.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

namespace forebay::posix {

Error failed(std::string what) {
  return Error(errno ? errno : EIO, std::move(what));
}

namespace {

FileType type_of_mode(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return FileType::file;
    case S_IFDIR:
      return FileType::directory;
    case S_IFLNK:
      return FileType::symlink;
    case S_IFIFO:
      return FileType::fifo;
    case S_IFSOCK:
      return FileType::socket;
    case S_IFBLK:
      return FileType::block;
    case S_IFCHR:
      return FileType::character;
  }
  return FileType::unknown;
}

FileTime time_of(const statx_timestamp& t) {
  return {t.tv_sec, t.tv_nsec};
}

void fill(const struct statx& s, Attr& attr) {
  attr.type = type_of_mode(s.stx_mode);
  attr.mode = s.stx_mode & 07777;
  attr.uid = s.stx_uid;
  attr.gid = s.stx_gid;
  attr.links = s.stx_nlink;
  attr.size = s.stx_size;
  attr.allocated = s.stx_blocks * 512;
  attr.file_id = s.stx_ino;
  attr.rdev = makedev(s.stx_rdev_major, s.stx_rdev_minor);
  attr.block_size = s.stx_blksize;
  attr.atime = time_of(s.stx_atime);
  attr.mtime = time_of(s.stx_mtime);
  attr.ctime = time_of(s.stx_ctime);
  if (s.stx_mask & STATX_BTIME) attr.btime = time_of(s.stx_btime);
}

}  // namespace

Result<FileStat> stat_of(int fd) {
  struct statx s;
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_SYNC_AS_STAT, STATX_BASIC_STATS | STATX_BTIME, &s))
    return failed("statx");
  FileStat result;
  fill(s, result.attr);
  result.id = {makedev(s.stx_dev_major, s.stx_dev_minor), s.stx_ino, result.attr.btime};
  return result;
}

FsKind fs_kind(int fd) {
  constexpr unsigned long kXfsMagic = 0x58465342;  // "XFSB"; <linux/magic.h> lacks it
  struct statfs fs;
  if (::fstatfs(fd, &fs)) return {.local = false, .fuse = true};
  switch (static_cast<unsigned long>(fs.f_type)) {
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case kXfsMagic:
      return {.local = true, .fuse = false};
    case FUSE_SUPER_MAGIC:
      return {.local = false, .fuse = true};
  }
  return {};
}

namespace {

// Without openat2: kernels before 5.6 lack it, and containers may forbid it (EPERM, from some).
Result<Fd> open_name(int directory, const std::string& name, int flags, uint32_t mode) {
  if (name.find('/') != name.npos || name == "..")
    return Error(ENOSYS, "openat2 is missing: this needs Linux 5.6 or later");
  for (;;) {
    const int fd = ::openat(directory, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd >= 0) return Fd(fd);
    if (errno != EINTR) return failed(name);
  }
}

}  // namespace

Result<Fd> open_beneath(int directory, const std::string& path, int flags, uint32_t mode,
                        Mounts mounts) {
  struct open_how how = {};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC | O_NOFOLLOW;
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  if (mounts == Mounts::stay) how.resolve |= RESOLVE_NO_XDEV;
  // EAGAIN says that a rename or mount went on elsewhere meanwhile, and to try again.
  for (int attempt = 0;; ++attempt) {
    const long fd = ::syscall(SYS_openat2, directory, path.c_str(), &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    if (errno == EINTR || (errno == EAGAIN && attempt < 64)) continue;
    if (mounts == Mounts::enter && (errno == ENOSYS || errno == EPERM))
      return open_name(directory, path, flags, mode);
    return failed(path);
  }
}

Result<Fd> open_path(int directory, const std::string& path, Mounts mounts) {
  return open_beneath(directory, path, O_PATH, 0, mounts);
}

Result<Fd> reopen(int path_fd, FileType type, int flags) {
  if (type == FileType::symlink) return Error(ELOOP, "a symbolic link is not opened");
  if (type != FileType::file && type != FileType::directory)
    return Error(EOPNOTSUPP, "only regular files are opened, not fifos, sockets or devices");
  for (;;) {
    const int fd = ::open(ProcPath(path_fd).c_str(), flags | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0) return Fd(fd);
    if (errno != EINTR) return failed("open");
  }
}

ProcPath::ProcPath(int fd) {
  *fmt::format_to_n(text_, sizeof text_ - 1, "/proc/self/fd/{}", fd).out = '\0';
}

bool out_of_descriptors(const Error& error) {
  return error.code() == EMFILE || error.code() == ENFILE;
}

}  // namespace forebay::posix
