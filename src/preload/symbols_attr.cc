// Attributes: the stat family, modes, owners, times, rights, extended attributes.
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utime.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace forebay::preload {

void to_stat(const struct ::statx& from, struct stat* to) {
  *to = {};
  to->st_dev = ::gnu_dev_makedev(from.stx_dev_major, from.stx_dev_minor);
  to->st_ino = from.stx_ino;
  to->st_mode = from.stx_mode;
  to->st_nlink = from.stx_nlink;
  to->st_uid = from.stx_uid;
  to->st_gid = from.stx_gid;
  to->st_rdev = ::gnu_dev_makedev(from.stx_rdev_major, from.stx_rdev_minor);
  to->st_size = static_cast<off_t>(from.stx_size);
  to->st_blksize = from.stx_blksize;
  to->st_blocks = static_cast<blkcnt_t>(from.stx_blocks);
  to->st_atim = {from.stx_atime.tv_sec, from.stx_atime.tv_nsec};
  to->st_mtim = {from.stx_mtime.tv_sec, from.stx_mtime.tv_nsec};
  to->st_ctim = {from.stx_ctime.tv_sec, from.stx_ctime.tv_nsec};
}

}  // namespace forebay::preload

namespace {

int stat_served(const Target& target, struct stat* to) {
  struct statx found;
  if (ask(&Served::status, target, &found) != 0) return -1;
  to_stat(found, to);
  return 0;
}

Target open_file(int fd) {
  return {fd, nullptr, nullptr, true};
}

bool names_nothing(const char* path) {
  return !path || path[0] == '\0';
}

int stat_at(int base, const char* path, struct stat* to, int flags) {
  if ((flags & AT_EMPTY_PATH) && names_nothing(path)) {
    if (is_served(base)) return stat_served(open_file(base), to);
    if (base == AT_FDCWD && served_cwd()) path = ".";
  }
  return follow(base, path, !(flags & AT_SYMLINK_NOFOLLOW), [&](const Route& route) {
    return route.served() ? stat_served(route.target, to)
                          : next<"fstatat64", int>(route.directory, route.path, to, flags);
  });
}

int change_at(int base, const char* path, bool follow, const Change& change) {
  const Route route(base, path, follow);
  return ask(&Served::change, route.target, change);
}

Change of_times(const timespec* times) {
  Change change;
  change.times = true;
  if (times) {
    change.atime = times[0];
    change.mtime = times[1];
  } else {
    change.atime.tv_nsec = change.mtime.tv_nsec = UTIME_NOW;
  }
  return change;
}
Change of_times(const timeval* times) {
  if (!times) return of_times(static_cast<const timespec*>(nullptr));
  const timespec two[2] = {{times[0].tv_sec, times[0].tv_usec * 1000},
                           {times[1].tv_sec, times[1].tv_usec * 1000}};
  return of_times(two);
}
Change of_mode(mode_t mode) {
  Change change;
  change.mode = true;
  change.to_mode = mode;
  return change;
}
Change of_owner(uid_t uid, gid_t gid) {
  Change change;
  change.owner = true;
  change.uid = uid;
  change.gid = gid;
  return change;
}

}  // namespace

extern "C" {

// ---- stat ----

int fb_stat(const char* path, struct stat* to) {
  return follow(AT_FDCWD, path, true, [&](const Route& route) {
    return route.served() ? stat_served(route.target, to) : next<"stat64", int>(route.path, to);
  });
}
int fb_lstat(const char* path, struct stat* to) {
  return follow(AT_FDCWD, path, false, [&](const Route& route) {
    return route.served() ? stat_served(route.target, to) : next<"lstat64", int>(route.path, to);
  });
}
int fb_fstat(int fd, struct stat* to) {
  return is_served(fd) ? stat_served(open_file(fd), to) : next<"fstat64", int>(fd, to);
}
int fb_fstatat(int base, const char* path, struct stat* to, int flags) {
  return stat_at(base, path, to, flags);
}
int fb_xstat(int, const char* path, struct stat* to) {
  return fb_stat(path, to);
}
int fb_lxstat(int, const char* path, struct stat* to) {
  return fb_lstat(path, to);
}
int fb_fxstat(int, int fd, struct stat* to) {
  return fb_fstat(fd, to);
}
int fb_fxstatat(int, int base, const char* path, struct stat* to, int flags) {
  return stat_at(base, path, to, flags);
}
int fb_statx(int base, const char* path, int flags, unsigned mask, struct statx* to) {
  if ((flags & AT_EMPTY_PATH) && names_nothing(path)) {
    if (is_served(base)) return ask(&Served::status, open_file(base), to);
    if (base == AT_FDCWD && served_cwd()) path = ".";
  }
  return follow(base, path, !(flags & AT_SYMLINK_NOFOLLOW), [&](const Route& route) {
    return route.served() ? ask(&Served::status, route.target, to)
                          : next<"statx", int>(route.directory, route.path, flags, mask, to);
  });
}

FOREBAY_EXPORT(stat, fb_stat);
FOREBAY_EXPORT(stat64, fb_stat);
FOREBAY_EXPORT(lstat, fb_lstat);
FOREBAY_EXPORT(lstat64, fb_lstat);
FOREBAY_EXPORT(fstat, fb_fstat);
FOREBAY_EXPORT(fstat64, fb_fstat);
FOREBAY_EXPORT(fstatat, fb_fstatat);
FOREBAY_EXPORT(fstatat64, fb_fstatat);
FOREBAY_EXPORT(__xstat, fb_xstat);
FOREBAY_EXPORT(__xstat64, fb_xstat);
FOREBAY_EXPORT(__lxstat, fb_lxstat);
FOREBAY_EXPORT(__lxstat64, fb_lxstat);
FOREBAY_EXPORT(__fxstat, fb_fxstat);
FOREBAY_EXPORT(__fxstat64, fb_fxstat);
FOREBAY_EXPORT(__fxstatat, fb_fxstatat);
FOREBAY_EXPORT(__fxstatat64, fb_fxstatat);
FOREBAY_EXPORT(statx, fb_statx);

// ---- May I? ----

int fb_faccessat(int base, const char* path, int mode, int flags) {
  return follow(base, path, !(flags & AT_SYMLINK_NOFOLLOW), [&](const Route& route) {
    return route.served() ? ask(&Served::access, route.target, mode, (flags & AT_EACCESS) != 0)
                          : next<"faccessat", int>(route.directory, route.path, mode, flags);
  });
}
int fb_access(const char* path, int mode) {
  return follow(AT_FDCWD, path, true, [&](const Route& route) {
    return route.served() ? ask(&Served::access, route.target, mode, false)
                          : next<"access", int>(route.path, mode);
  });
}
int fb_euidaccess(const char* path, int mode) {
  return follow(AT_FDCWD, path, true, [&](const Route& route) {
    return route.served() ? ask(&Served::access, route.target, mode, true)
                          : next<"euidaccess", int>(route.path, mode);
  });
}

FOREBAY_EXPORT(access, fb_access);
FOREBAY_EXPORT(faccessat, fb_faccessat);
FOREBAY_EXPORT(euidaccess, fb_euidaccess);
FOREBAY_EXPORT(eaccess, fb_euidaccess);

// ---- Modes and owners ----

int fb_fchmodat(int base, const char* path, mode_t mode, int flags) {
  const Route route(base, path, !(flags & AT_SYMLINK_NOFOLLOW));
  if (route.served()) return ask(&Served::change, route.target, of_mode(mode));
  return next<"fchmodat", int>(route.directory, route.path, mode, flags);
}
int fb_chmod(const char* path, mode_t mode) {
  const Route route(AT_FDCWD, path);
  if (route.served()) return ask(&Served::change, route.target, of_mode(mode));
  return next<"chmod", int>(route.path, mode);
}
int fb_lchmod(const char* path, mode_t mode) {
  return fb_fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW);
}
int fb_fchmod(int fd, mode_t mode) {
  if (is_served(fd)) return ask(&Served::change, open_file(fd), of_mode(mode));
  return next<"fchmod", int>(fd, mode);
}
int fb_fchownat(int base, const char* path, uid_t uid, gid_t gid, int flags) {
  if ((flags & AT_EMPTY_PATH) && names_nothing(path) && is_served(base))
    return ask(&Served::change, open_file(base), of_owner(uid, gid));
  const Route route(base, path, !(flags & AT_SYMLINK_NOFOLLOW));
  if (route.served()) return ask(&Served::change, route.target, of_owner(uid, gid));
  return next<"fchownat", int>(route.directory, route.path, uid, gid, flags);
}
int fb_chown(const char* path, uid_t uid, gid_t gid) {
  const Route route(AT_FDCWD, path);
  if (route.served()) return ask(&Served::change, route.target, of_owner(uid, gid));
  return next<"chown", int>(route.path, uid, gid);
}
int fb_lchown(const char* path, uid_t uid, gid_t gid) {
  const Route route(AT_FDCWD, path, false);
  if (route.served()) return ask(&Served::change, route.target, of_owner(uid, gid));
  return next<"lchown", int>(route.path, uid, gid);
}
int fb_fchown(int fd, uid_t uid, gid_t gid) {
  if (is_served(fd)) return ask(&Served::change, open_file(fd), of_owner(uid, gid));
  return next<"fchown", int>(fd, uid, gid);
}

FOREBAY_EXPORT(chmod, fb_chmod);
FOREBAY_EXPORT(lchmod, fb_lchmod);
FOREBAY_EXPORT(fchmod, fb_fchmod);
FOREBAY_EXPORT(fchmodat, fb_fchmodat);
FOREBAY_EXPORT(chown, fb_chown);
FOREBAY_EXPORT(lchown, fb_lchown);
FOREBAY_EXPORT(fchown, fb_fchown);
FOREBAY_EXPORT(fchownat, fb_fchownat);

// ---- Times ----

int fb_utimensat(int base, const char* path, const timespec* times, int flags) {
  if (!path && is_served(base)) return ask(&Served::change, open_file(base), of_times(times));
  const Route route(base, path, !(flags & AT_SYMLINK_NOFOLLOW));
  if (route.served()) return ask(&Served::change, route.target, of_times(times));
  return next<"utimensat", int>(route.directory, route.path, times, flags);
}
int fb_futimens(int fd, const timespec* times) {
  if (is_served(fd)) return ask(&Served::change, open_file(fd), of_times(times));
  return next<"futimens", int>(fd, times);
}
int fb_utimes(const char* path, const timeval* times) {
  if (Route(AT_FDCWD, path).served()) return change_at(AT_FDCWD, path, true, of_times(times));
  const Route route(AT_FDCWD, path);
  return next<"utimes", int>(route.path, times);
}
int fb_lutimes(const char* path, const timeval* times) {
  if (Route(AT_FDCWD, path).served()) return change_at(AT_FDCWD, path, false, of_times(times));
  const Route route(AT_FDCWD, path);
  return next<"lutimes", int>(route.path, times);
}
int fb_futimes(int fd, const timeval* times) {
  if (is_served(fd)) return ask(&Served::change, open_file(fd), of_times(times));
  return next<"futimes", int>(fd, times);
}
int fb_futimesat(int base, const char* path, const timeval* times) {
  if (Route(base, path).served()) return change_at(base, path, true, of_times(times));
  const Route route(base, path);
  return next<"futimesat", int>(route.directory, route.path, times);
}
int fb_utime(const char* path, const utimbuf* times) {
  const Route route(AT_FDCWD, path);
  if (!route.served()) return next<"utime", int>(route.path, times);
  if (!times) return ask(&Served::change, route.target, of_times(static_cast<timespec*>(nullptr)));
  const timespec two[2] = {{times->actime, 0}, {times->modtime, 0}};
  return ask(&Served::change, route.target, of_times(two));
}

FOREBAY_EXPORT(utimensat, fb_utimensat);
FOREBAY_EXPORT(futimens, fb_futimens);
FOREBAY_EXPORT(utimes, fb_utimes);
FOREBAY_EXPORT(lutimes, fb_lutimes);
FOREBAY_EXPORT(futimes, fb_futimes);
FOREBAY_EXPORT(futimesat, fb_futimesat);
FOREBAY_EXPORT(utime, fb_utime);
}
