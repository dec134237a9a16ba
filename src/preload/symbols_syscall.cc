// syscall(2) as programs use it to call what an older libc has no function for, or what another
// preload should not see (libuv, allocators): the calls that may be about a served file are made by
// their names, all others as they are.
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

struct Arguments {
  long all[6];
  int i(int n) const { return static_cast<int>(all[n]); }
  unsigned u(int n) const { return static_cast<unsigned>(all[n]); }
  size_t size(int n) const { return static_cast<size_t>(all[n]); }
  template <class T>
  T* at(int n) const {
    return reinterpret_cast<T*>(all[n]);
  }
};

long as_it_is(long number, const Arguments& a) {
  return next<"syscall", long>(number, a.all[0], a.all[1], a.all[2], a.all[3], a.all[4], a.all[5]);
}

// Of a served file how a path may be followed cannot be limited.
long open_how_at(const Arguments& a) {
  const auto* const how = a.at<const open_how>(2);
  const Route route(a.i(0), a.at<const char>(1));
  if (!route.served() || !how || a.size(3) < sizeof *how) return as_it_is(SYS_openat2, a);
  if (how->resolve & ~uint64_t{RESOLVE_NO_MAGICLINKS})
    return refuse("openat2", "how a served path is followed cannot be limited", EOPNOTSUPP);
  return ::openat64(a.i(0), a.at<const char>(1), static_cast<int>(how->flags),
                    static_cast<mode_t>(how->mode));
}

long of_name(long number, const Arguments& a) {
  switch (number) {
    case SYS_openat:
      return ::openat64(a.i(0), a.at<const char>(1), a.i(2), static_cast<mode_t>(a.u(3)));
    case SYS_openat2:
      return open_how_at(a);
    case SYS_statx:
      return ::statx(a.i(0), a.at<const char>(1), a.i(2), a.u(3), a.at<struct statx>(4));
    case SYS_newfstatat:
      return ::fstatat64(a.i(0), a.at<const char>(1), a.at<struct stat64>(2), a.i(3));
    case SYS_faccessat:
      return ::faccessat(a.i(0), a.at<const char>(1), a.i(2), 0);
    case SYS_faccessat2:
      return ::faccessat(a.i(0), a.at<const char>(1), a.i(2), a.i(3));
    case SYS_readlinkat:
      return ::readlinkat(a.i(0), a.at<const char>(1), a.at<char>(2), a.size(3));
    case SYS_renameat2:
      return ::renameat2(a.i(0), a.at<const char>(1), a.i(2), a.at<const char>(3), a.u(4));
    case SYS_unlinkat:
      return ::unlinkat(a.i(0), a.at<const char>(1), a.i(2));
    case SYS_mkdirat:
      return ::mkdirat(a.i(0), a.at<const char>(1), static_cast<mode_t>(a.u(2)));
    case SYS_chdir:
      return ::chdir(a.at<const char>(0));
    default:
      return as_it_is(number, a);
  }
}

long of_descriptor(long number, const Arguments& a) {
  switch (number) {
    case SYS_read:
      return ::read(a.i(0), a.at<void>(1), a.size(2));
    case SYS_write:
      return ::write(a.i(0), a.at<const void>(1), a.size(2));
    case SYS_pread64:
      return ::pread64(a.i(0), a.at<void>(1), a.size(2), a.all[3]);
    case SYS_pwrite64:
      return ::pwrite64(a.i(0), a.at<const void>(1), a.size(2), a.all[3]);
    case SYS_readv:
      return ::readv(a.i(0), a.at<const iovec>(1), a.i(2));
    case SYS_writev:
      return ::writev(a.i(0), a.at<const iovec>(1), a.i(2));
    case SYS_preadv2:  // the offset in two halves, of which the first is all of it here
      return ::preadv64v2(a.i(0), a.at<const iovec>(1), a.i(2), a.all[3], a.i(5));
    case SYS_pwritev2:
      return ::pwritev64v2(a.i(0), a.at<const iovec>(1), a.i(2), a.all[3], a.i(5));
    case SYS_copy_file_range:
      return ::copy_file_range(a.i(0), a.at<off64_t>(1), a.i(2), a.at<off64_t>(3), a.size(4),
                               a.u(5));
    case SYS_getdents64:
      return ::getdents64(a.i(0), a.at<void>(1), a.size(2));
    case SYS_lseek:
      return ::lseek64(a.i(0), a.all[1], a.i(2));
    case SYS_fstat:
      return ::fstat64(a.i(0), a.at<struct stat64>(1));
    case SYS_fsync:
      return ::fsync(a.i(0));
    case SYS_ftruncate:
      return ::ftruncate64(a.i(0), a.all[1]);
    case SYS_fallocate:
      return ::fallocate64(a.i(0), a.i(1), a.all[2], a.all[3]);
    case SYS_close:
      return ::close(a.i(0));
    case SYS_close_range:
      return ::close_range(a.u(0), a.u(1), a.i(2));
    case SYS_dup:
      return ::dup(a.i(0));
    case SYS_dup3:
      return ::dup3(a.i(0), a.i(1), a.i(2));
    default:
      return of_name(number, a);
  }
}

}  // namespace

extern "C" {

long fb_syscall(long number, ...) {
  Arguments a;
  va_list more;
  va_start(more, number);
  for (long& one : a.all) one = va_arg(more, long);
  va_end(more);
  return inside == 0 && begun() && active() ? of_descriptor(number, a) : as_it_is(number, a);
}

FOREBAY_EXPORT(syscall, fb_syscall);
}
