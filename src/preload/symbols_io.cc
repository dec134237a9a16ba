// Bytes of open files, and what is done to open files as a whole.
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

struct At {
  off64_t offset = 0;
  bool placed = false;
};

ssize_t move(int fd, bool write, const iovec* pieces, int count, At at, int flags = 0) {
  if (at.placed && at.offset < 0) return errno = EINVAL, -1;
  constexpr int kKnown = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND;
  if (flags & ~kKnown) return errno = EOPNOTSUPP, -1;
  if (flags & RWF_NOWAIT) return errno = EOPNOTSUPP, -1;
  ::pthread_testcancel();
  return ask(&Served::move,
             Transfer{fd, write, pieces, count, at.offset, at.placed, (flags & RWF_APPEND) != 0,
                      (flags & (RWF_DSYNC | RWF_SYNC)) != 0});
}

ssize_t move(int fd, bool write, const void* bytes, size_t size, At at = {}) {
  const iovec piece = {const_cast<void*>(bytes), size};
  return move(fd, write, &piece, 1, at);
}

int unread(int fd, int* to) {
  struct stat64 now;
  const off64_t at = ::lseek64(fd, 0, SEEK_CUR);
  if (at < 0 || ::fstat64(fd, &now) != 0) return -1;
  const off64_t left = now.st_size > at ? now.st_size - at : 0;
  *to = left < INT_MAX ? static_cast<int>(left) : INT_MAX;
  return 0;
}

[[noreturn]] void too_small(const char* function) {
  char line[128];
  ::snprintf(line, sizeof line, "*** buffer overflow detected in %s ***\n", function);
  say(line);
  ::abort();
}

// From one descriptor to another through memory, where one of them is ours.
struct Side {
  int fd;
  off64_t* offset;  // null: the descriptor's own
};
// Where nothing is to be moved, what is open for what counts all the same.
bool may_pump(int from, int to, int append_is) {
  const int reads = ::fcntl(from, F_GETFL), writes = ::fcntl(to, F_GETFL);
  if (reads < 0 || writes < 0) return false;
  if ((reads & O_ACCMODE) == O_WRONLY || (writes & O_ACCMODE) == O_RDONLY)
    return errno = EBADF, false;
  if (writes & O_APPEND) return errno = append_is, false;
  return true;
}
ssize_t pump(Side from, Side to, size_t size) {
  constexpr size_t kPiece = 1 << 20;
  if (size == 0) return 0;
  const size_t room = size < kPiece ? size : kPiece;
  void* const memory =
      ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return -1;
  size_t done = 0;
  ssize_t n = 0;
  while (done < size) {
    const size_t want = size - done < room ? size - done : room;
    n = from.offset ? ::pread64(from.fd, memory, want, *from.offset)
                    : ::read(from.fd, memory, want);
    if (n <= 0) break;
    ssize_t put = 0;
    while (put < n) {
      const char* const at = static_cast<const char*>(memory) + put;
      const ssize_t one = to.offset
                              ? ::pwrite64(to.fd, at, static_cast<size_t>(n - put), *to.offset)
                              : ::write(to.fd, at, static_cast<size_t>(n - put));
      if (one <= 0) break;
      put += one;
      if (to.offset) *to.offset += one;
    }
    // What was read and could not be written was not taken.
    if (from.offset)
      *from.offset += put;
    else if (put < n)
      ::lseek64(from.fd, put - n, SEEK_CUR);
    done += static_cast<size_t>(put);
    if (put < n) {
      n = -1;
      break;
    }
    if (static_cast<size_t>(n) < want) break;
  }
  const int kept = errno;
  ::munmap(memory, room);
  errno = kept;
  return done > 0 ? static_cast<ssize_t>(done) : n;
}

}  // namespace

extern "C" {

// ---- Reading and writing ----

ssize_t fb_read(int fd, void* to, size_t size) {
  return is_served(fd) ? move(fd, false, to, size) : next<"read", ssize_t>(fd, to, size);
}
ssize_t fb_read_chk(int fd, void* to, size_t size, size_t room) {
  if (size > room) too_small("read");
  return fb_read(fd, to, size);
}
ssize_t fb_write(int fd, const void* from, size_t size) {
  return is_served(fd) ? move(fd, true, from, size) : next<"write", ssize_t>(fd, from, size);
}
ssize_t fb_pread(int fd, void* to, size_t size, off64_t at) {
  return is_served(fd) ? move(fd, false, to, size, {at, true})
                       : next<"pread64", ssize_t>(fd, to, size, at);
}
ssize_t fb_pread_chk(int fd, void* to, size_t size, off64_t at, size_t room) {
  if (size > room) too_small("pread");
  return fb_pread(fd, to, size, at);
}
ssize_t fb_pwrite(int fd, const void* from, size_t size, off64_t at) {
  return is_served(fd) ? move(fd, true, from, size, {at, true})
                       : next<"pwrite64", ssize_t>(fd, from, size, at);
}
ssize_t fb_readv(int fd, const iovec* pieces, int count) {
  return is_served(fd) ? move(fd, false, pieces, count, {})
                       : next<"readv", ssize_t>(fd, pieces, count);
}
ssize_t fb_writev(int fd, const iovec* pieces, int count) {
  return is_served(fd) ? move(fd, true, pieces, count, {})
                       : next<"writev", ssize_t>(fd, pieces, count);
}
ssize_t fb_preadv(int fd, const iovec* pieces, int count, off64_t at) {
  return is_served(fd) ? move(fd, false, pieces, count, {at, true})
                       : next<"preadv64", ssize_t>(fd, pieces, count, at);
}
ssize_t fb_pwritev(int fd, const iovec* pieces, int count, off64_t at) {
  return is_served(fd) ? move(fd, true, pieces, count, {at, true})
                       : next<"pwritev64", ssize_t>(fd, pieces, count, at);
}
ssize_t fb_preadv2(int fd, const iovec* pieces, int count, off64_t at, int flags) {
  return is_served(fd) ? move(fd, false, pieces, count, {at, at != -1}, flags)
                       : next<"preadv64v2", ssize_t>(fd, pieces, count, at, flags);
}
ssize_t fb_pwritev2(int fd, const iovec* pieces, int count, off64_t at, int flags) {
  return is_served(fd) ? move(fd, true, pieces, count, {at, at != -1}, flags)
                       : next<"pwritev64v2", ssize_t>(fd, pieces, count, at, flags);
}
off64_t fb_lseek(int fd, off64_t by, int whence) {
  return is_served(fd) ? ask(&Served::seek, fd, by, whence)
                       : next<"lseek64", off64_t>(fd, by, whence);
}

FOREBAY_EXPORT(read, fb_read);
FOREBAY_EXPORT(__read, fb_read);
FOREBAY_EXPORT(__read_chk, fb_read_chk);
FOREBAY_EXPORT(write, fb_write);
FOREBAY_EXPORT(__write, fb_write);
FOREBAY_EXPORT(pread, fb_pread);
FOREBAY_EXPORT(pread64, fb_pread);
FOREBAY_EXPORT(__pread64, fb_pread);
FOREBAY_EXPORT(__pread_chk, fb_pread_chk);
FOREBAY_EXPORT(__pread64_chk, fb_pread_chk);
FOREBAY_EXPORT(pwrite, fb_pwrite);
FOREBAY_EXPORT(pwrite64, fb_pwrite);
FOREBAY_EXPORT(__pwrite64, fb_pwrite);
FOREBAY_EXPORT(readv, fb_readv);
FOREBAY_EXPORT(writev, fb_writev);
FOREBAY_EXPORT(preadv, fb_preadv);
FOREBAY_EXPORT(preadv64, fb_preadv);
FOREBAY_EXPORT(pwritev, fb_pwritev);
FOREBAY_EXPORT(pwritev64, fb_pwritev);
FOREBAY_EXPORT(preadv2, fb_preadv2);
FOREBAY_EXPORT(preadv64v2, fb_preadv2);
FOREBAY_EXPORT(pwritev2, fb_pwritev2);
FOREBAY_EXPORT(pwritev64v2, fb_pwritev2);
FOREBAY_EXPORT(lseek, fb_lseek);
FOREBAY_EXPORT(lseek64, fb_lseek);
FOREBAY_EXPORT(__lseek, fb_lseek);

// ---- From one descriptor to another ----

ssize_t fb_sendfile(int to, int from, off64_t* at, size_t size) {
  if (!is_served(to) && !is_served(from)) return next<"sendfile64", ssize_t>(to, from, at, size);
  if (!may_pump(from, to, EINVAL)) return -1;
  if (at && *at < 0) return errno = EINVAL, -1;
  return pump({from, at}, {to, nullptr}, size);
}
ssize_t fb_copy_file_range(int from, off64_t* at, int to, off64_t* into, size_t size,
                           unsigned flags) {
  if (!is_served(to) && !is_served(from))
    return next<"copy_file_range", ssize_t>(from, at, to, into, size, flags);
  if (flags != 0) return errno = EINVAL, -1;
  if (!may_pump(from, to, EBADF)) return -1;
  if ((at && *at < 0) || (into && *into < 0)) return errno = EINVAL, -1;
  return pump({from, at}, {to, into}, size);
}
ssize_t fb_splice(int from, off64_t* at, int to, off64_t* into, size_t size, unsigned flags) {
  if (!is_served(to) && !is_served(from))
    return next<"splice", ssize_t>(from, at, to, into, size, flags);
  return refuse("splice", "a served file has no pages to splice", EINVAL);
}
ssize_t fb_vmsplice(int fd, const iovec* pieces, size_t count, unsigned flags) {
  if (!is_served(fd)) return next<"vmsplice", ssize_t>(fd, pieces, count, flags);
  return errno = EBADF, -1;
}

FOREBAY_EXPORT(sendfile, fb_sendfile);
FOREBAY_EXPORT(sendfile64, fb_sendfile);
FOREBAY_EXPORT(copy_file_range, fb_copy_file_range);
FOREBAY_EXPORT(splice, fb_splice);
FOREBAY_EXPORT(vmsplice, fb_vmsplice);

// ---- Sizes and safety ----

int fb_ftruncate(int fd, off64_t size) {
  if (!is_served(fd)) return next<"ftruncate64", int>(fd, size);
  return ask(&Served::truncate, Target{fd}, size);
}
int fb_truncate(const char* path, off64_t size) {
  const Route route(AT_FDCWD, path);
  if (!route.served()) return next<"truncate64", int>(route.path, size);
  return ask(&Served::truncate, route.target, size);
}
int fb_fallocate(int fd, int mode, off64_t at, off64_t length) {
  if (!is_served(fd)) return next<"fallocate64", int>(fd, mode, at, length);
  return ask(&Served::allocate, fd, Range{at, length, mode});
}
int fb_posix_fallocate(int fd, off64_t at, off64_t length) {
  if (!is_served(fd)) return next<"posix_fallocate64", int>(fd, at, length);
  const int kept = errno;
  const int failed = ask(&Served::allocate, fd, Range{at, length, 0, true}) == 0 ? 0 : errno;
  errno = kept;
  return failed;
}
int fb_posix_fadvise(int fd, off64_t at, off64_t length, int advice) {
  return is_served(fd) ? 0 : next<"posix_fadvise64", int>(fd, at, length, advice);
}
ssize_t fb_readahead(int fd, off64_t at, size_t size) {
  return is_served(fd) ? 0 : next<"readahead", ssize_t>(fd, at, size);
}
int fb_fsync(int fd) {
  return is_served(fd) ? ask(&Served::sync, fd, false) : next<"fsync", int>(fd);
}
int fb_fdatasync(int fd) {
  return is_served(fd) ? ask(&Served::sync, fd, true) : next<"fdatasync", int>(fd);
}
int fb_sync_file_range(int fd, off64_t at, off64_t length, unsigned flags) {
  return is_served(fd) ? ask(&Served::sync, fd, true)
                       : next<"sync_file_range", int>(fd, at, length, flags);
}
int fb_syncfs(int fd) {
  return is_served(fd) ? ask(&Served::sync, fd, false) : next<"syncfs", int>(fd);
}

FOREBAY_EXPORT(ftruncate, fb_ftruncate);
FOREBAY_EXPORT(ftruncate64, fb_ftruncate);
FOREBAY_EXPORT(truncate, fb_truncate);
FOREBAY_EXPORT(truncate64, fb_truncate);
FOREBAY_EXPORT(fallocate, fb_fallocate);
FOREBAY_EXPORT(fallocate64, fb_fallocate);
FOREBAY_EXPORT(posix_fallocate, fb_posix_fallocate);
FOREBAY_EXPORT(posix_fallocate64, fb_posix_fallocate);
FOREBAY_EXPORT(posix_fadvise, fb_posix_fadvise);
FOREBAY_EXPORT(posix_fadvise64, fb_posix_fadvise);
FOREBAY_EXPORT(readahead, fb_readahead);
FOREBAY_EXPORT(fsync, fb_fsync);
FOREBAY_EXPORT(fdatasync, fb_fdatasync);
FOREBAY_EXPORT(sync_file_range, fb_sync_file_range);
FOREBAY_EXPORT(syncfs, fb_syncfs);

// ---- Mappings ----

void* fb_mmap(void* at, size_t size, int protection, int flags, int fd, off64_t from) {
  if ((flags & MAP_ANONYMOUS) || !is_served(fd))
    return next<"mmap64", void*>(at, size, protection, flags, fd, from);
  const bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;
  if (shared && (protection & PROT_WRITE)) {
    refuse("mmap", "a served file cannot be mapped shared and writable", ENODEV);
    return MAP_FAILED;
  }
  return ask(&Served::map, fd, at, size, protection, flags, from);
}

FOREBAY_EXPORT(mmap, fb_mmap);
FOREBAY_EXPORT(mmap64, fb_mmap);

// ---- Devices ----

int fb_ioctl(int fd, unsigned long request, ...) {
  va_list more;
  va_start(more, request);
  void* const argument = va_arg(more, void*);
  va_end(more);
  if (request == FICLONE && is_served(static_cast<int>(reinterpret_cast<intptr_t>(argument))))
    return errno = EXDEV, -1;
  if (!is_served(fd)) return next<"ioctl", int>(fd, request, argument);
  switch (request) {
    case FIONREAD:
      return unread(fd, static_cast<int*>(argument));
    case FIOCLEX:
      return ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    case FIONCLEX:
      return ::fcntl(fd, F_SETFD, 0);
    case FIONBIO:
      return 0;
    default:
      return errno = ENOTTY, -1;
  }
}
// A terminal it is not; libc would ask the kernel, which says EBADF.
int fb_tcgetattr(int fd, termios* to) {
  return is_served(fd) ? (errno = ENOTTY, -1) : next<"tcgetattr", int>(fd, to);
}
int fb_tcsetattr(int fd, int how, const termios* from) {
  return is_served(fd) ? (errno = ENOTTY, -1) : next<"tcsetattr", int>(fd, how, from);
}
pid_t fb_tcgetpgrp(int fd) {
  return is_served(fd) ? (errno = ENOTTY, -1) : next<"tcgetpgrp", pid_t>(fd);
}
char* fb_ttyname(int fd) {
  return is_served(fd) ? (errno = ENOTTY, nullptr) : next_pointer<"ttyname", char*>(fd);
}
int fb_ttyname_r(int fd, char* to, size_t room) {
  return is_served(fd) ? errno = ENOTTY : next<"ttyname_r", int>(fd, to, room);
}
int fb_isatty(int fd) {
  if (!is_served(fd)) return next<"isatty", int>(fd);
  errno = ENOTTY;
  return 0;
}

FOREBAY_EXPORT(ioctl, fb_ioctl);
FOREBAY_EXPORT(tcgetattr, fb_tcgetattr);
FOREBAY_EXPORT(tcsetattr, fb_tcsetattr);
FOREBAY_EXPORT(tcgetpgrp, fb_tcgetpgrp);
FOREBAY_EXPORT(ttyname, fb_ttyname);
FOREBAY_EXPORT(ttyname_r, fb_ttyname_r);
FOREBAY_EXPORT(isatty, fb_isatty);
}
