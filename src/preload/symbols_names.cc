// Names: made, removed, renamed, linked, read.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

// Two names in one call: both ours, or both the kernel's.
int across(const char* call) {
  (void)call;
  return errno = EXDEV, -1;
}

int rename_at(int base, const char* old, int to_base, const char* to, unsigned flags) {
  const Route from(base, old, false), into(to_base, to, false);
  if (from.served() != into.served()) return across("rename");
  if (from.served()) return ask(&Served::rename, from.target, into.target, flags);
  if (flags == 0)
    return next<"renameat", int>(from.directory, from.path, into.directory, into.path);
  return next<"renameat2", int>(from.directory, from.path, into.directory, into.path, flags);
}

int link_at(int base, const char* old, int to_base, const char* to, int flags) {
  const Route from(base, old, (flags & AT_SYMLINK_FOLLOW) != 0), into(to_base, to, false);
  if ((flags & AT_EMPTY_PATH) && old && old[0] == '\0' && is_served(base))
    return refuse("linkat", "an open served file cannot be given a name", ENOENT);
  if (from.served() != into.served()) return across("link");
  if (from.served()) return ask(&Served::link, from.target, into.target);
  return next<"linkat", int>(from.directory, from.path, into.directory, into.path, flags);
}

// The last six characters before `suffix` become others until `make` has a name of its own.
template <class Make>
int temporary(char* name, int suffix, Make&& make) {
  const size_t size = ::strlen(name);
  if (suffix < 0 || size < static_cast<size_t>(suffix) + 6) return errno = EINVAL, -1;
  char* const at = name + size - static_cast<size_t>(suffix) - 6;
  if (::memcmp(at, "XXXXXX", 6) != 0) return errno = EINVAL, -1;
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  for (int tries = 0; tries < 1000; ++tries) {
    unsigned char random[6];
    if (::getrandom(random, sizeof random, 0) != sizeof random) return -1;
    for (int i = 0; i < 6; ++i) at[i] = kLetters[random[i] % (sizeof kLetters - 1)];
    const int done = make(name);
    if (done >= 0 || errno != EEXIST) return done;
  }
  return errno = EEXIST, -1;
}

int temporary_file(char* name, int suffix, int flags) {
  return temporary(name, suffix, [&](const char* path) {
    return ::open64(path, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
  });
}

}  // namespace

extern "C" {

// ---- Renaming and linking ----

int fb_rename(const char* old, const char* to) {
  const Route from(AT_FDCWD, old, false), into(AT_FDCWD, to, false);
  if (from.served() != into.served()) return across("rename");
  if (from.served()) return ask(&Served::rename, from.target, into.target, 0u);
  return next<"rename", int>(from.path, into.path);
}
int fb_renameat(int base, const char* old, int to_base, const char* to) {
  return rename_at(base, old, to_base, to, 0);
}
int fb_renameat2(int base, const char* old, int to_base, const char* to, unsigned flags) {
  return rename_at(base, old, to_base, to, flags);
}
int fb_link(const char* old, const char* to) {
  return link_at(AT_FDCWD, old, AT_FDCWD, to, 0);
}
int fb_linkat(int base, const char* old, int to_base, const char* to, int flags) {
  return link_at(base, old, to_base, to, flags);
}
int fb_symlinkat(const char* text, int base, const char* path) {
  const Route route(base, path, false);
  if (!route.served()) return next<"symlinkat", int>(text, route.directory, route.path);
  return ask(&Served::symlink, text, route.target);
}
int fb_symlink(const char* text, const char* path) {
  return fb_symlinkat(text, AT_FDCWD, path);
}

FOREBAY_EXPORT(rename, fb_rename);
FOREBAY_EXPORT(renameat, fb_renameat);
FOREBAY_EXPORT(renameat2, fb_renameat2);
FOREBAY_EXPORT(link, fb_link);
FOREBAY_EXPORT(linkat, fb_linkat);
FOREBAY_EXPORT(symlink, fb_symlink);
FOREBAY_EXPORT(symlinkat, fb_symlinkat);

// ---- Removing ----

int fb_unlinkat(int base, const char* path, int flags) {
  const Route route(base, path, false);
  if (!route.served()) return next<"unlinkat", int>(route.directory, route.path, flags);
  if (flags & ~AT_REMOVEDIR) return errno = EINVAL, -1;
  return ask(&Served::remove, route.target, (flags & AT_REMOVEDIR) != 0);
}
int fb_unlink(const char* path) {
  const Route route(AT_FDCWD, path, false);
  if (!route.served()) return next<"unlink", int>(route.path);
  return ask(&Served::remove, route.target, false);
}
int fb_rmdir(const char* path) {
  const Route route(AT_FDCWD, path, false);
  if (!route.served()) return next<"rmdir", int>(route.path);
  return ask(&Served::remove, route.target, true);
}
int fb_remove(const char* path) {
  const Route route(AT_FDCWD, path, false);
  if (!route.served()) return next<"remove", int>(route.path);
  if (ask(&Served::remove, route.target, false) == 0) return 0;
  return errno == EISDIR || errno == EPERM ? ask(&Served::remove, route.target, true) : -1;
}

FOREBAY_EXPORT(unlink, fb_unlink);
FOREBAY_EXPORT(unlinkat, fb_unlinkat);
FOREBAY_EXPORT(rmdir, fb_rmdir);
FOREBAY_EXPORT(remove, fb_remove);

// ---- Making ----

int fb_mkdirat(int base, const char* path, mode_t mode) {
  const Route route(base, path, false);
  if (!route.served()) return next<"mkdirat", int>(route.directory, route.path, mode);
  return ask(&Served::mkdir, route.target, mode);
}
int fb_mkdir(const char* path, mode_t mode) {
  const Route route(AT_FDCWD, path, false);
  if (!route.served()) return next<"mkdir", int>(route.path, mode);
  return ask(&Served::mkdir, route.target, mode);
}
int fb_mknodat(int base, const char* path, mode_t mode, dev_t device) {
  const Route route(base, path, false);
  if (!route.served()) return next<"mknodat", int>(route.directory, route.path, mode, device);
  if ((mode & S_IFMT) != 0 && !S_ISREG(mode))
    return refuse("mknod", "a served folder has regular files, folders and links only", EPERM);
  return ask(&Served::make_file, route.target, mode);
}
int fb_mknod(const char* path, mode_t mode, dev_t device) {
  return fb_mknodat(AT_FDCWD, path, mode, device);
}
int fb_xmknod(int, const char* path, mode_t mode, dev_t* device) {
  return fb_mknodat(AT_FDCWD, path, mode, *device);
}
int fb_xmknodat(int, int base, const char* path, mode_t mode, dev_t* device) {
  return fb_mknodat(base, path, mode, *device);
}
int fb_mkfifoat(int base, const char* path, mode_t mode) {
  const Route route(base, path, false);
  if (!route.served()) return next<"mkfifoat", int>(route.directory, route.path, mode);
  return refuse("mkfifo", "a served folder has regular files, folders and links only", EPERM);
}
int fb_mkfifo(const char* path, mode_t mode) {
  return fb_mkfifoat(AT_FDCWD, path, mode);
}

int fb_bind(int fd, const sockaddr* address, socklen_t size) {
  constexpr size_t kFront = offsetof(sockaddr_un, sun_path);
  if (!active() || !address || size <= kFront || address->sa_family != AF_UNIX)
    return next<"bind", int>(fd, address, size);
  char path[sizeof(sockaddr_un) + 1] = {};
  const size_t length = size < sizeof(sockaddr_un) ? size : sizeof(sockaddr_un);
  ::memcpy(path, reinterpret_cast<const char*>(address) + kFront, length - kFront);
  if (!Route(AT_FDCWD, path, false).served()) return next<"bind", int>(fd, address, size);
  return refuse("bind", "a served folder has regular files, folders and links only", EPERM);
}

FOREBAY_EXPORT(bind, fb_bind);
FOREBAY_EXPORT(mkdir, fb_mkdir);
FOREBAY_EXPORT(mkdirat, fb_mkdirat);
FOREBAY_EXPORT(mknod, fb_mknod);
FOREBAY_EXPORT(mknodat, fb_mknodat);
FOREBAY_EXPORT(__xmknod, fb_xmknod);
FOREBAY_EXPORT(__xmknodat, fb_xmknodat);
FOREBAY_EXPORT(mkfifo, fb_mkfifo);
FOREBAY_EXPORT(mkfifoat, fb_mkfifoat);

int fb_mkstemp(char* name) {
  if (!Route(AT_FDCWD, name).served() && !served_cwd()) return next<"mkstemp64", int>(name);
  return temporary_file(name, 0, 0);
}
int fb_mkostemp(char* name, int flags) {
  if (!Route(AT_FDCWD, name).served() && !served_cwd()) return next<"mkostemp64", int>(name, flags);
  return temporary_file(name, 0, flags);
}
int fb_mkstemps(char* name, int suffix) {
  if (!Route(AT_FDCWD, name).served() && !served_cwd())
    return next<"mkstemps64", int>(name, suffix);
  return temporary_file(name, suffix, 0);
}
int fb_mkostemps(char* name, int suffix, int flags) {
  if (!Route(AT_FDCWD, name).served() && !served_cwd())
    return next<"mkostemps64", int>(name, suffix, flags);
  return temporary_file(name, suffix, flags);
}
char* fb_mkdtemp(char* name) {
  if (!Route(AT_FDCWD, name).served() && !served_cwd()) return next_pointer<"mkdtemp", char*>(name);
  return temporary(name, 0, [](const char* path) { return fb_mkdir(path, 0700); }) == 0 ? name
                                                                                        : nullptr;
}

FOREBAY_EXPORT(mkstemp, fb_mkstemp);
FOREBAY_EXPORT(mkstemp64, fb_mkstemp);
FOREBAY_EXPORT(mkostemp, fb_mkostemp);
FOREBAY_EXPORT(mkostemp64, fb_mkostemp);
FOREBAY_EXPORT(mkstemps, fb_mkstemps);
FOREBAY_EXPORT(mkstemps64, fb_mkstemps);
FOREBAY_EXPORT(mkostemps, fb_mkostemps);
FOREBAY_EXPORT(mkostemps64, fb_mkostemps);
FOREBAY_EXPORT(mkdtemp, fb_mkdtemp);

// ---- Reading links ----

// The names of our descriptors and of our working directory are ours to tell; false: it is none.
static bool own_link(const char* path, char* shown) {
  if (!active() || inside != 0 || !path || ::strncmp(path, "/", 1) != 0) return false;
  char own[32];
  ::snprintf(own, sizeof own, "/proc/%d/", static_cast<int>(::getpid()));
  for (const char* start : {"/proc/self/", "/dev/", static_cast<const char*>(own)}) {
    const size_t size = ::strlen(start);
    if (::strncmp(path, start, size) != 0) continue;
    const char* const rest = path + size;
    if (::strcmp(rest, "cwd") == 0 && served_cwd()) return ::strcpy(shown, served_cwd()), true;
    if (::strncmp(rest, "fd/", 3) != 0 || rest[3] < '0' || rest[3] > '9') return false;
    const int fd = ::atoi(rest + 3);
    return is_served(fd) && ask(&Served::shown, fd, shown, PATH_MAX) == 0;
  }
  return false;
}
ssize_t fb_readlinkat(int base, const char* path, char* to, size_t room) {
  const Route route(base, path, false);
  if (route.served()) return ask(&Served::readlink, route.target, to, room);
  char shown[PATH_MAX];
  if (!own_link(route.path, shown))
    return next<"readlinkat", ssize_t>(route.directory, route.path, to, room);
  const size_t whole = ::strlen(shown), part = whole < room ? whole : room;
  ::memcpy(to, shown, part);
  return static_cast<ssize_t>(part);
}
ssize_t fb_readlink(const char* path, char* to, size_t room) {
  return fb_readlinkat(AT_FDCWD, path, to, room);
}
ssize_t fb_readlink_chk(const char* path, char* to, size_t room, size_t size) {
  if (room > size) ::abort();
  return fb_readlink(path, to, room);
}
ssize_t fb_readlinkat_chk(int base, const char* path, char* to, size_t room, size_t size) {
  if (room > size) ::abort();
  return fb_readlinkat(base, path, to, room);
}

FOREBAY_EXPORT(readlink, fb_readlink);
FOREBAY_EXPORT(readlinkat, fb_readlinkat);
FOREBAY_EXPORT(__readlink_chk, fb_readlink_chk);
FOREBAY_EXPORT(__readlinkat_chk, fb_readlinkat_chk);
}
