// Directories: listings, and the working directory.
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

// A DIR of ours; libc's begins with a descriptor, which is no such number.
constexpr uint64_t kOurDirectory = 0xf0'4e'ba'79'd1'4e'c7'04;
struct Listing {
  uint64_t magic = kOurDirectory;
  int fd = -1;
  void* entries = nullptr;
  dirent64 entry = {};
};

Listing* ours(void* directory) {
  auto* const listing = static_cast<Listing*>(directory);
  return served_if_loaded() && listing && listing->magic == kOurDirectory ? listing : nullptr;
}

void* list(int fd) {
  void* const entries = ask(&Served::list, fd);
  if (!entries) return nullptr;
  auto* const listing = static_cast<Listing*>(::calloc(1, sizeof(Listing)));
  if (!listing) return errno = ENOMEM, nullptr;
  listing->magic = kOurDirectory;
  listing->fd = fd;
  listing->entries = entries;
  return listing;
}

template <class F>
F* libcs(const char* name) {
  return reinterpret_cast<F*>(find_next(name));
}

}  // namespace

extern "C" {

void* fb_opendir(const char* path) {
  const Route route(AT_FDCWD, path);
  if (!route.served()) return libcs<void*(const char*)>("opendir")(route.path);
  const int fd = ::open64(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* const listing = list(fd);
  if (!listing) ::close(fd);
  return listing;
}
void* fb_fdopendir(int fd) {
  return is_served(fd) ? list(fd) : libcs<void*(int)>("fdopendir")(fd);
}
dirent64* fb_readdir(void* directory) {
  static dirent64* (*const libc_readdir)(void*) = libcs<dirent64*(void*)>("readdir64");
  Listing* const listing = ours(directory);
  if (!listing) return libc_readdir(directory);
  return ask(&Served::next_entry, listing->entries, &listing->entry) == 1 ? &listing->entry
                                                                          : nullptr;
}
int fb_readdir_r(void* directory, dirent64* entry, dirent64** result) {
  Listing* const listing = ours(directory);
  if (!listing)
    return libcs<int(void*, dirent64*, dirent64**)>("readdir64_r")(directory, entry, result);
  const int got = ask(&Served::next_entry, listing->entries, entry);
  *result = got == 1 ? entry : nullptr;
  return got < 0 ? errno : 0;
}
int fb_closedir(void* directory) {
  Listing* const listing = ours(directory);
  if (!listing) return next<"closedir", int>(directory);
  const int fd = listing->fd;
  ask(&Served::end_list, listing->entries);
  listing->magic = 0;
  ::free(listing);
  return ::close(fd);
}
void fb_rewinddir(void* directory) {
  Listing* const listing = ours(directory);
  if (!listing) return libcs<void(void*)>("rewinddir")(directory);
  ask(&Served::seek_entry, listing->entries, 0L);
}
void fb_seekdir(void* directory, long cookie) {
  Listing* const listing = ours(directory);
  if (!listing) return libcs<void(void*, long)>("seekdir")(directory, cookie);
  ask(&Served::seek_entry, listing->entries, cookie);
}
long fb_telldir(void* directory) {
  Listing* const listing = ours(directory);
  return listing ? static_cast<long>(listing->entry.d_off) : next<"telldir", long>(directory);
}
int fb_dirfd(void* directory) {
  Listing* const listing = ours(directory);
  return listing ? listing->fd : next<"dirfd", int>(directory);
}

FOREBAY_EXPORT(opendir, fb_opendir);
FOREBAY_EXPORT(fdopendir, fb_fdopendir);
FOREBAY_EXPORT(readdir, fb_readdir);
FOREBAY_EXPORT(readdir64, fb_readdir);
FOREBAY_EXPORT(readdir_r, fb_readdir_r);
FOREBAY_EXPORT(readdir64_r, fb_readdir_r);
FOREBAY_EXPORT(closedir, fb_closedir);
FOREBAY_EXPORT(rewinddir, fb_rewinddir);
FOREBAY_EXPORT(seekdir, fb_seekdir);
FOREBAY_EXPORT(telldir, fb_telldir);
FOREBAY_EXPORT(dirfd, fb_dirfd);

// ---- What libc does with directories by itself ----

using Filter = int (*)(const dirent64*);
using Order = int (*)(const dirent64**, const dirent64**);

static int scan(const char* path, dirent64*** to, Filter keep, Order order) {
  void* const directory = fb_opendir(path);
  if (!directory) return -1;
  dirent64** all = nullptr;
  size_t count = 0, room = 0;
  while (const dirent64* const entry = fb_readdir(directory)) {
    if (keep && !keep(entry)) continue;
    if (count == room) {
      room = room ? room * 2 : 32;
      all = static_cast<dirent64**>(::realloc(all, room * sizeof *all));
    }
    all[count] = static_cast<dirent64*>(::malloc(entry->d_reclen));
    ::memcpy(all[count++], entry, entry->d_reclen);
  }
  fb_closedir(directory);
  using Compare = int (*)(const void*, const void*);
  if (order && count > 1) ::qsort(all, count, sizeof *all, reinterpret_cast<Compare>(order));
  *to = all ? all : static_cast<dirent64**>(::malloc(sizeof *all));
  return static_cast<int>(count);
}
int fb_scandir(const char* path, dirent64*** to, Filter keep, Order order) {
  const Route route(AT_FDCWD, path);
  if (route.served()) return scan(path, to, keep, order);
  return next<"scandir64", int>(route.path, to, keep, order);
}
int fb_nftw(const char* path, __nftw64_func_t each, int most, int flags) {
  if (Route(AT_FDCWD, path).served()) return refuse("nftw", "not served", ENOTSUP);
  return next<"nftw64", int>(path, each, most, flags);
}
int fb_ftw(const char* path, __ftw64_func_t each, int most) {
  if (Route(AT_FDCWD, path).served()) return refuse("ftw", "not served", ENOTSUP);
  return next<"ftw64", int>(path, each, most);
}
void* fb_fts_open(char* const* paths, int options, void* compare) {
  for (char* const* path = paths; path && *path; ++path)
    if (Route(AT_FDCWD, *path).served()) return refuse("fts_open", "not served", ENOTSUP), nullptr;
  return libcs<void*(char* const*, int, void*)>("fts_open")(paths, options, compare);
}

FOREBAY_EXPORT(scandir, fb_scandir);
FOREBAY_EXPORT(scandir64, fb_scandir);
FOREBAY_EXPORT(nftw, fb_nftw);
FOREBAY_EXPORT(nftw64, fb_nftw);
FOREBAY_EXPORT(ftw, fb_ftw);
FOREBAY_EXPORT(ftw64, fb_ftw);
FOREBAY_EXPORT(fts_open, fb_fts_open);
FOREBAY_EXPORT(fts64_open, fb_fts_open);

// libc's own takes functions to look with.
int fb_glob(const char* pattern, int flags, int (*failed)(const char*, int), glob64_t* found) {
  if (!active() || (flags & GLOB_ALTDIRFUNC) ||
      (!served_cwd() && !Route(AT_FDCWD, pattern).served()))
    return next<"glob64", int>(pattern, flags, failed, found);
  found->gl_opendir = reinterpret_cast<void* (*)(const char*)>(&fb_opendir);
  found->gl_readdir = reinterpret_cast<dirent64* (*)(void*)>(&fb_readdir);
  found->gl_closedir = [](void* directory) { fb_closedir(directory); };
  found->gl_lstat = [](const char* path, struct stat64* to) { return ::lstat64(path, to); };
  found->gl_stat = [](const char* path, struct stat64* to) { return ::stat64(path, to); };
  return next<"glob64", int>(pattern, flags | GLOB_ALTDIRFUNC, failed, found);
}

FOREBAY_EXPORT(glob, fb_glob);
FOREBAY_EXPORT(glob64, fb_glob);

// ---- The working directory ----

// A directory of the kernel's with this path for a name, removed again: see route.cc.
static int enter_removed(const char* shown) {
  char path[PATH_MAX + 64];
  for (const char* place : {"/tmp", "/dev/shm", "/var/tmp", "/run"}) {
    uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) return -1;
    const int top = ::snprintf(path, sizeof path, "%s/forebay-cwd.%016lx", place, random);
    if (static_cast<size_t>(top) + ::strlen(shown) >= PATH_MAX - 16)
      return errno = ENAMETOOLONG, -1;
    if (next<"mkdir", int>(static_cast<const char*>(path), mode_t{0700}) != 0) continue;
    ::strcpy(path + top, shown);
    bool made = true;
    for (char* at = path + top + 1; made && at;) {
      char* const slash = ::strchr(at, '/');
      if (slash) *slash = '\0';
      made = next<"mkdir", int>(static_cast<const char*>(path), mode_t{0700}) == 0;
      if (slash) *slash = '/';
      at = slash ? slash + 1 : nullptr;
    }
    const int entered = made ? next<"chdir", int>(static_cast<const char*>(path)) : -1;
    for (size_t size = ::strlen(path); size >= static_cast<size_t>(top);) {
      next<"rmdir", int>(static_cast<const char*>(path));
      while (size > 0 && path[--size] != '/') {
      }
      path[size] = '\0';
    }
    if (entered == 0) return 0;
  }
  return refuse("chdir", "no place in /tmp, /dev/shm, /var/tmp or /run for a working directory",
                EACCES);
}

static int enter(const Target& target, const char* shown) {
  struct statx found;
  if (ask(&Served::status, target, &found) != 0) return -1;
  if (!S_ISDIR(found.stx_mode)) return errno = ENOTDIR, -1;
  if (ask(&Served::access, target, X_OK, true) != 0 || enter_removed(shown) != 0) return -1;
  moved_to(shown);
  return 0;
}

int fb_chdir(const char* path) {
  const Route route(AT_FDCWD, path);
  if (route.served()) return enter(route.target, route.shown);
  const int done = next<"chdir", int>(route.path);
  if (done == 0 && active() && inside == 0) moved_to(nullptr);
  return done;
}
int fb_fchdir(int fd) {
  if (!is_served(fd)) {
    const int done = next<"fchdir", int>(fd);
    if (done == 0 && active() && inside == 0) moved_to(nullptr);
    return done;
  }
  char shown[PATH_MAX];
  if (ask(&Served::shown, fd, shown, sizeof shown) != 0) return -1;
  return enter(Target{fd, nullptr, nullptr, true}, shown);
}
char* fb_getcwd(char* to, size_t room) {
  const char* const path = served_cwd();
  if (!path) return libcs<char*(char*, size_t)>("getcwd")(to, room);
  const size_t size = ::strlen(path) + 1;
  if (!to && room == 0) room = size;
  if (room < size) return errno = to && room == 0 ? EINVAL : ERANGE, nullptr;
  if (!to) to = static_cast<char*>(::malloc(room));
  if (to) ::memcpy(to, path, size);
  return to;
}
char* fb_getcwd_chk(char* to, size_t room, size_t size) {
  if (room > size) ::abort();
  return fb_getcwd(to, room);
}
char* fb_getwd(char* to) {
  return fb_getcwd(to, PATH_MAX);
}
char* fb_get_current_dir_name() {
  return served_cwd() ? ::strdup(served_cwd()) : libcs<char*()>("get_current_dir_name")();
}

FOREBAY_EXPORT(chdir, fb_chdir);
FOREBAY_EXPORT(fchdir, fb_fchdir);
FOREBAY_EXPORT(getcwd, fb_getcwd);
FOREBAY_EXPORT(__getcwd_chk, fb_getcwd_chk);
FOREBAY_EXPORT(getwd, fb_getwd);
FOREBAY_EXPORT(get_current_dir_name, fb_get_current_dir_name);

// ---- Whole names ----

// As realpath(3), link by link. `to` and the result have PATH_MAX bytes.
static char* resolve(const char* path, char* to) {
  char left[PATH_MAX], text[PATH_MAX];
  size_t size = 0;
  if (path[0] == '\0') return errno = ENOENT, nullptr;
  if (::strlen(path) >= sizeof left) return errno = ENAMETOOLONG, nullptr;
  ::strcpy(left, path);
  if (path[0] != '/' && !fb_getcwd(to, PATH_MAX)) return nullptr;
  if (path[0] != '/') size = ::strlen(to);
  if (size == 1) size = 0;
  int links = 0;
  for (char* at = left; *at;) {
    while (*at == '/') ++at;
    const size_t length = ::strcspn(at, "/");
    if (length == 0) break;
    const char* const name = at;
    at += length;
    if (length == 1 && name[0] == '.') continue;
    if (length == 2 && name[0] == '.' && name[1] == '.') {
      while (size > 0 && to[--size] != '/') {
      }
      continue;
    }
    if (size + length + 2 > PATH_MAX) return errno = ENAMETOOLONG, nullptr;
    const size_t before = size;
    to[size++] = '/';
    ::memcpy(to + size, name, length);
    to[size += length] = '\0';
    struct stat64 found;
    if (::lstat64(to, &found) != 0) return nullptr;
    if (!S_ISLNK(found.st_mode)) {
      if (*at && !S_ISDIR(found.st_mode)) return errno = ENOTDIR, nullptr;
      continue;
    }
    if (++links > 40) return errno = ELOOP, nullptr;
    const ssize_t n = ::readlink(to, text, sizeof text - 1);
    if (n < 0) return nullptr;
    const size_t rest = ::strlen(at);
    if (static_cast<size_t>(n) + rest + 1 > sizeof text) return errno = ENAMETOOLONG, nullptr;
    ::memcpy(text + n, at, rest + 1);
    ::strcpy(left, text);
    at = left;
    size = left[0] == '/' ? 0 : before;
  }
  if (size == 0) to[size++] = '/';
  to[size] = '\0';
  return to;
}

char* fb_realpath(const char* path, char* to) {
  if (!path) return errno = EINVAL, nullptr;
  if (!active() || inside != 0 || (!Route(AT_FDCWD, path).served() && !served_cwd()))
    return libcs<char*(const char*, char*)>("realpath")(path, to);
  char found[PATH_MAX];
  if (!resolve(path, found)) return nullptr;
  return to ? ::strcpy(to, found) : ::strdup(found);
}
char* fb_realpath_chk(const char* path, char* to, size_t size) {
  if (size < PATH_MAX) ::abort();
  return fb_realpath(path, to);
}
char* fb_canonicalize_file_name(const char* path) {
  return fb_realpath(path, nullptr);
}

FOREBAY_EXPORT(realpath, fb_realpath);
FOREBAY_EXPORT(__realpath_chk, fb_realpath_chk);
FOREBAY_EXPORT(canonicalize_file_name, fb_canonicalize_file_name);
}
