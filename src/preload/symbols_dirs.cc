// Directories: listings.
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wordexp.h>

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
  if (!listing) return ask(&Served::end_list, entries), errno = ENOMEM, nullptr;
  listing->magic = kOurDirectory;
  listing->fd = fd;
  listing->entries = entries;
  return listing;
}

}  // namespace

extern "C" {

void* fb_opendir(const char* path) {
  const Route route(AT_FDCWD, path);
  if (!route.served()) return next_pointer<"opendir", void*>(route.path);
  const int fd = ::open64(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  if (!is_served(fd)) return next_pointer<"fdopendir", void*>(fd);  // a link led out
  void* const listing = list(fd);
  if (!listing) ::close(fd);
  return listing;
}
void* fb_fdopendir(int fd) {
  return is_served(fd) ? list(fd) : next_pointer<"fdopendir", void*>(fd);
}
dirent64* fb_readdir(void* directory) {
  Listing* const listing = ours(directory);
  if (!listing) return next_pointer<"readdir64", dirent64*>(directory);
  return ask(&Served::next_entry, listing->entries, &listing->entry) == 1 ? &listing->entry
                                                                          : nullptr;
}
int fb_readdir_r(void* directory, dirent64* entry, dirent64** result) {
  Listing* const listing = ours(directory);
  if (!listing) return next<"readdir64_r", int>(directory, entry, result);
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
  if (!listing) return next_void<"rewinddir">(directory);
  listing->entry.d_off = 0;  // telldir(3) says it
  ask(&Served::seek_entry, listing->entries, 0L);
}
void fb_seekdir(void* directory, long cookie) {
  Listing* const listing = ours(directory);
  if (!listing) return next_void<"seekdir">(directory, cookie);
  listing->entry.d_off = cookie;
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

static int scan(void* directory, dirent64*** to, Filter keep, Order order) {
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
  if (route.served()) return scan(fb_opendir(path), to, keep, order);
  return next<"scandir64", int>(route.path, to, keep, order);
}
int fb_scandirat(int base, const char* path, dirent64*** to, Filter keep, Order order) {
  const Route route(base, path);
  if (route.served()) return scan(fb_opendir(route.shown), to, keep, order);
  return next<"scandirat64", int>(route.directory, route.path, to, keep, order);
}
// The place in the directory is the description's offset.
ssize_t fb_getdents(int fd, void* to, size_t room) {
  if (!is_served(fd)) return next<"getdents64", ssize_t>(fd, to, room);
  void* const entries = ask(&Served::list, fd);
  if (!entries) return -1;
  ask(&Served::seek_entry, entries, static_cast<long>(ask(&Served::seek, fd, 0, SEEK_CUR)));
  size_t size = 0;
  dirent64 entry;
  int got = 0;
  while ((got = ask(&Served::next_entry, entries, &entry)) == 1) {
    if (size + entry.d_reclen > room) break;
    ::memcpy(static_cast<char*>(to) + size, &entry, entry.d_reclen);
    size += entry.d_reclen;
    ask(&Served::seek, fd, entry.d_off, SEEK_SET);
  }
  const int kept = errno;
  ask(&Served::end_list, entries);
  if (size > 0) return static_cast<ssize_t>(size);
  return got == 0 ? 0 : (errno = got < 0 ? kept : EINVAL, -1);
}

FOREBAY_EXPORT(scandir, fb_scandir);
FOREBAY_EXPORT(scandir64, fb_scandir);
FOREBAY_EXPORT(scandirat, fb_scandirat);
FOREBAY_EXPORT(scandirat64, fb_scandirat);
FOREBAY_EXPORT(getdents64, fb_getdents);

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

// It looks for patterns by itself, and would leave them as they are.
int fb_wordexp(const char* words, wordexp_t* to, int flags) {
  const bool pattern = ::strpbrk(words, "*?[") != nullptr;
  if (pattern && (served_cwd() || names_served(words))) {
    refuse("wordexp", "patterns of served names are not served", ENOTSUP);
    return WRDE_NOSPACE;
  }
  return next<"wordexp", int>(words, to, flags);
}

FOREBAY_EXPORT(wordexp, fb_wordexp);
FOREBAY_EXPORT(glob, fb_glob);
FOREBAY_EXPORT(glob64, fb_glob);
}
