// File systems, and extended attributes.
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

Target of_fd(int fd) {
  return {fd, nullptr, nullptr, true};
}

int statfs_served(const Target& target, struct statfs* to) {
  struct statvfs found;
  if (ask(&Served::file_system, target, &found) != 0) return -1;
  *to = {};
  to->f_type = 0x65735546;  // as a mount's (FUSE): programs take it for a remote one
  to->f_bsize = static_cast<long>(found.f_bsize);
  to->f_frsize = static_cast<long>(found.f_frsize);
  to->f_blocks = found.f_blocks;
  to->f_bfree = found.f_bfree;
  to->f_bavail = found.f_bavail;
  to->f_files = found.f_files;
  to->f_ffree = found.f_ffree;
  to->f_namelen = static_cast<long>(found.f_namemax);
  return 0;
}

}  // namespace

extern "C" {

int fb_statfs(const char* path, struct statfs* to) {
  const Route route(AT_FDCWD, path);
  return route.served() ? statfs_served(route.target, to) : next<"statfs64", int>(route.path, to);
}
int fb_fstatfs(int fd, struct statfs* to) {
  return is_served(fd) ? statfs_served(of_fd(fd), to) : next<"fstatfs64", int>(fd, to);
}
int fb_statvfs(const char* path, struct statvfs* to) {
  const Route route(AT_FDCWD, path);
  return route.served() ? ask(&Served::file_system, route.target, to)
                        : next<"statvfs64", int>(route.path, to);
}
int fb_fstatvfs(int fd, struct statvfs* to) {
  return is_served(fd) ? ask(&Served::file_system, of_fd(fd), to) : next<"fstatvfs64", int>(fd, to);
}
long fb_pathconf(const char* path, int name) {
  const Route route(AT_FDCWD, path);
  struct statx found;
  if (!route.served()) return next<"pathconf", long>(route.path, name);
  if (ask(&Served::status, route.target, &found) != 0) return -1;
  return next<"pathconf", long>("/", name);
}
long fb_fpathconf(int fd, int name) {
  return is_served(fd) ? next<"pathconf", long>("/", name) : next<"fpathconf", long>(fd, name);
}

FOREBAY_EXPORT(statfs, fb_statfs);
FOREBAY_EXPORT(statfs64, fb_statfs);
FOREBAY_EXPORT(fstatfs, fb_fstatfs);
FOREBAY_EXPORT(fstatfs64, fb_fstatfs);
FOREBAY_EXPORT(statvfs, fb_statvfs);
FOREBAY_EXPORT(statvfs64, fb_statvfs);
FOREBAY_EXPORT(fstatvfs, fb_fstatvfs);
FOREBAY_EXPORT(fstatvfs64, fb_fstatvfs);
FOREBAY_EXPORT(pathconf, fb_pathconf);
FOREBAY_EXPORT(fpathconf, fb_fpathconf);

// ---- Extended attributes ----

ssize_t fb_getxattr(const char* path, const char* name, void* to, size_t room) {
  const Route route(AT_FDCWD, path);
  return route.served() ? ask(&Served::get_xattr, route.target, name, to, room)
                        : next<"getxattr", ssize_t>(route.path, name, to, room);
}
ssize_t fb_lgetxattr(const char* path, const char* name, void* to, size_t room) {
  const Route route(AT_FDCWD, path, false);
  return route.served() ? ask(&Served::get_xattr, route.target, name, to, room)
                        : next<"lgetxattr", ssize_t>(route.path, name, to, room);
}
ssize_t fb_fgetxattr(int fd, const char* name, void* to, size_t room) {
  return is_served(fd) ? ask(&Served::get_xattr, of_fd(fd), name, to, room)
                       : next<"fgetxattr", ssize_t>(fd, name, to, room);
}
int fb_setxattr(const char* path, const char* name, const void* value, size_t size, int flags) {
  const Route route(AT_FDCWD, path);
  return route.served() ? ask(&Served::set_xattr, route.target, name, value, size, flags)
                        : next<"setxattr", int>(route.path, name, value, size, flags);
}
int fb_lsetxattr(const char* path, const char* name, const void* value, size_t size, int flags) {
  const Route route(AT_FDCWD, path, false);
  return route.served() ? ask(&Served::set_xattr, route.target, name, value, size, flags)
                        : next<"lsetxattr", int>(route.path, name, value, size, flags);
}
int fb_fsetxattr(int fd, const char* name, const void* value, size_t size, int flags) {
  return is_served(fd) ? ask(&Served::set_xattr, of_fd(fd), name, value, size, flags)
                       : next<"fsetxattr", int>(fd, name, value, size, flags);
}
ssize_t fb_listxattr(const char* path, char* to, size_t room) {
  const Route route(AT_FDCWD, path);
  return route.served() ? ask(&Served::list_xattr, route.target, to, room)
                        : next<"listxattr", ssize_t>(route.path, to, room);
}
ssize_t fb_llistxattr(const char* path, char* to, size_t room) {
  const Route route(AT_FDCWD, path, false);
  return route.served() ? ask(&Served::list_xattr, route.target, to, room)
                        : next<"llistxattr", ssize_t>(route.path, to, room);
}
ssize_t fb_flistxattr(int fd, char* to, size_t room) {
  return is_served(fd) ? ask(&Served::list_xattr, of_fd(fd), to, room)
                       : next<"flistxattr", ssize_t>(fd, to, room);
}
int fb_removexattr(const char* path, const char* name) {
  const Route route(AT_FDCWD, path);
  return route.served() ? ask(&Served::remove_xattr, route.target, name)
                        : next<"removexattr", int>(route.path, name);
}
int fb_lremovexattr(const char* path, const char* name) {
  const Route route(AT_FDCWD, path, false);
  return route.served() ? ask(&Served::remove_xattr, route.target, name)
                        : next<"lremovexattr", int>(route.path, name);
}
int fb_fremovexattr(int fd, const char* name) {
  return is_served(fd) ? ask(&Served::remove_xattr, of_fd(fd), name)
                       : next<"fremovexattr", int>(fd, name);
}

FOREBAY_EXPORT(getxattr, fb_getxattr);
FOREBAY_EXPORT(lgetxattr, fb_lgetxattr);
FOREBAY_EXPORT(fgetxattr, fb_fgetxattr);
FOREBAY_EXPORT(setxattr, fb_setxattr);
FOREBAY_EXPORT(lsetxattr, fb_lsetxattr);
FOREBAY_EXPORT(fsetxattr, fb_fsetxattr);
FOREBAY_EXPORT(listxattr, fb_listxattr);
FOREBAY_EXPORT(llistxattr, fb_llistxattr);
FOREBAY_EXPORT(flistxattr, fb_flistxattr);
FOREBAY_EXPORT(removexattr, fb_removexattr);
FOREBAY_EXPORT(lremovexattr, fb_lremovexattr);
FOREBAY_EXPORT(fremovexattr, fb_fremovexattr);
}
