// Whole names, and the working directory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

// As realpath(3), link by link; what the last one leads to may be missing. `to` and the result have
// PATH_MAX bytes.
char* resolve(const char* path, char* to, bool missing = false) {
  char left[PATH_MAX], text[PATH_MAX];
  size_t size = 0;
  if (path[0] == '\0') return errno = ENOENT, nullptr;
  if (::strlen(path) >= sizeof left) return errno = ENAMETOOLONG, nullptr;
  ::strcpy(left, path);
  if (path[0] != '/' && !::getcwd(to, PATH_MAX)) return nullptr;
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
    if (::lstat64(to, &found) != 0) {
      if (errno == ENOENT && leads_to_served(to)) continue;  // the kernel may not have it
      if (errno == ENOENT && missing && !*at) return to;
      return nullptr;
    }
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

}  // namespace

namespace forebay::preload {

bool physical(int base, const char* path, char* to, bool missing) {
  char folder[PATH_MAX], whole[2 * PATH_MAX];
  if (path[0] == '/' || base == AT_FDCWD) return resolve(path, to, missing) != nullptr;
  if (!is_served(base) || ask(&Served::shown, base, folder, sizeof folder) != 0) return false;
  ::snprintf(whole, sizeof whole, "%s/%s", folder, path);
  return resolve(whole, to, missing) != nullptr;
}

bool physical_place(int base, const char* path, bool follow, char* to) {
  if (follow) return physical(base, path, to, true);
  char above[PATH_MAX];
  size_t size = ::strlen(path);
  if (size >= sizeof above) return errno = ENAMETOOLONG, false;
  ::memcpy(above, path, size + 1);
  while (size > 1 && above[size - 1] == '/') above[--size] = '\0';
  char* const slash = ::strrchr(above, '/');
  const char* const name = slash ? path + (slash - above) + 1 : path;
  if (slash) slash[slash == above ? 1 : 0] = '\0';
  if (!physical(base, slash ? above : ".", to)) return false;
  const size_t had = ::strlen(to);
  if (had + ::strlen(name) + 2 > PATH_MAX) return errno = ENAMETOOLONG, false;
  ::sprintf(to + (had == 1 ? 0 : had), "/%s", name);
  return true;
}

}  // namespace forebay::preload

extern "C" {

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

// Its name is the one without links in it, because ".." goes up from there.
int fb_chdir(const char* path) {
  const Route route(AT_FDCWD, path);
  char real[PATH_MAX];
  if (!route.served() || !resolve(path, real)) {
    if (route.served()) return -1;
    const int done = next<"chdir", int>(route.path);
    if (done == 0 && active() && inside == 0) moved_to(nullptr);
    return done;
  }
  const Route there(AT_FDCWD, real);
  if (there.served()) return enter(there.target, there.shown);
  const int done = next<"chdir", int>(static_cast<const char*>(real));
  if (done == 0) moved_to(nullptr);
  return done;
}
int fb_fchdir(int fd) {
  if (!is_served(fd)) {
    const int done = next<"fchdir", int>(fd);
    if (done == 0 && active() && inside == 0) moved_to(nullptr);
    return done;
  }
  char shown[PATH_MAX], real[PATH_MAX];
  if (ask(&Served::shown, fd, shown, sizeof shown) != 0) return -1;
  return enter(Target{fd, nullptr, nullptr, true}, resolve(shown, real) ? real : shown);
}
char* fb_getcwd(char* to, size_t room) {
  const char* const path = served_cwd();
  if (!path) return next_pointer<"getcwd", char*>(to, room);
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
  return served_cwd() ? ::strdup(served_cwd()) : next_pointer<"get_current_dir_name", char*>();
}

FOREBAY_EXPORT(chdir, fb_chdir);
FOREBAY_EXPORT(fchdir, fb_fchdir);
FOREBAY_EXPORT(getcwd, fb_getcwd);
FOREBAY_EXPORT(__getcwd_chk, fb_getcwd_chk);
FOREBAY_EXPORT(getwd, fb_getwd);
FOREBAY_EXPORT(get_current_dir_name, fb_get_current_dir_name);

// ---- Whole names ----

char* fb_realpath(const char* path, char* to) {
  if (!path) return errno = EINVAL, nullptr;
  if (!active() || inside != 0 || (!Route(AT_FDCWD, path).served() && !served_cwd()))
    return next_pointer<"realpath", char*>(path, to);
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
