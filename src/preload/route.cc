// Where a name leads: to the kernel, as it is, or to the export. Prefixes are compared by their
// text, after "." and ".." and double slashes are taken out; symbolic links of the kernel's file
// systems that lead to a prefix are not seen.
//
// A working directory of ours is, to the kernel, one that was removed: its name says which of ours
// it is, so that it survives an exec; and whoever we are not in can make nothing in it by mistake.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/shim.h"

namespace forebay::preload {
namespace {

constexpr int kMostPrefixes = 16;
constexpr char kCwdMark[] = "/forebay-cwd.";

struct Prefix {
  char path[PATH_MAX];    // "/forebay": whole, without a slash at its end
  char folder[PATH_MAX];  // of the export; "" is its root
};

struct Settings {
  Prefix prefixes[kMostPrefixes];
  int count = 0;
};

// Joins, takes out "." and "//", and with `up` "..". False: too long.
bool tidy(const char* base, const char* path, bool up, char* to) {
  size_t size = 0;
  for (const char* from : {base, path}) {
    while (from && *from) {
      while (*from == '/') ++from;
      const size_t length = ::strcspn(from, "/");
      if (length == 0) break;
      if (length == 1 && from[0] == '.') {
      } else if (up && length == 2 && from[0] == '.' && from[1] == '.') {
        while (size > 0 && to[--size] != '/') {
        }
      } else {
        if (size + length + 2 > PATH_MAX) return false;
        to[size++] = '/';
        ::memcpy(to + size, from, length);
        size += length;
      }
      from += length;
    }
  }
  if (size == 0) to[size++] = '/';
  to[size] = '\0';
  return true;
}

// What follows the prefix; null: it is elsewhere.
const char* below(const char* path, const char* prefix) {
  const size_t size = ::strlen(prefix);
  if (::strncmp(path, prefix, size) != 0) return nullptr;
  return path[size] == '\0' || path[size] == '/' ? path + size : nullptr;
}

void read_settings(Settings& to) {
  const char* rest = ::getenv("FOREBAY_CLIENT_PRELOAD");
  while (rest && *rest && to.count < kMostPrefixes) {
    while (*rest == ' ' || *rest == ',') ++rest;
    const size_t length = ::strcspn(rest, ",");
    char one[PATH_MAX];
    if (length == 0 || length >= sizeof one) break;
    ::memcpy(one, rest, length);
    one[length] = '\0';
    rest += length;
    Prefix& prefix = to.prefixes[to.count];
    char* const equals = ::strchr(one, '=');
    if (equals) *equals = '\0';
    if (one[0] != '/' || !tidy(nullptr, one, true, prefix.path) || prefix.path[1] == '\0') continue;
    prefix.folder[0] = '\0';
    if (equals && (!tidy(nullptr, equals + 1, true, prefix.folder))) continue;
    if (prefix.folder[0] == '/' && prefix.folder[1] == '\0') prefix.folder[0] = '\0';
    ++to.count;
  }
}

// Not from the heap: an allocator of the program's may itself open files when it begins.
const Settings& settings() {
  static Settings found;
  static bool read = false;
  if (!read) {
    read = true;
    read_settings(found);
  }
  return found;
}

}  // namespace

bool leads_to_served(const char* path) {
  const char* const prefix_of_all = path[1] == '\0' ? "" : path;
  for (int i = 0; i < settings().count; ++i)
    if (below(settings().prefixes[i].path, prefix_of_all)) return true;
  return false;
}

namespace {

struct Cwd {
  char path[PATH_MAX];
  bool known = false, ours = false;
  bool leads = false;  // a prefix is below it
};
Cwd g_cwd;

void set_cwd(const char* path, bool ours) {
  const size_t size = ::strlen(path);
  g_cwd.known = size < sizeof g_cwd.path;
  if (g_cwd.known) ::memmove(g_cwd.path, path, size + 1);
  g_cwd.ours = ours;
  g_cwd.leads = leads_to_served(path);
}

// From the kernel's name of the working directory.
void learn_cwd() {
  char path[PATH_MAX];
  const long size = ::syscall(SYS_readlink, "/proc/self/cwd", path, sizeof path - 1);
  g_cwd.known = false;
  g_cwd.ours = false;
  if (size <= 0) return;
  path[size] = '\0';
  char* const mark = ::strstr(path, kCwdMark);
  constexpr char kDeleted[] = " (deleted)";
  constexpr long kDeletedSize = sizeof kDeleted - 1;
  if (!mark || size < kDeletedSize || ::strcmp(path + size - kDeletedSize, kDeleted) != 0) {
    return set_cwd(path, false);
  }
  path[size - kDeletedSize] = '\0';
  const char* const own = ::strchr(mark + 1, '/');
  set_cwd(own ? own : "/", own != nullptr);
}

const Cwd& cwd() {
  static const bool learned = (learn_cwd(), true);
  (void)learned;
  return g_cwd;
}

// The remainder in the export of a path below a prefix.
bool fill(const Prefix& prefix, const char* rest, bool slash, char* to) {
  const size_t folder = ::strlen(prefix.folder), size = ::strlen(rest);
  if (folder + size + 3 > PATH_MAX) return false;
  ::memcpy(to, prefix.folder, folder);
  ::memcpy(to + folder, rest, size + 1);
  if (folder + size == 0 || slash) ::strcat(to, "/");
  return true;
}

// A descriptor that is named by a path: /dev/stdin, /dev/fd/3, /proc/self/fd/3. -1: none.
int named_descriptor(const char* path) {
  if (::strncmp(path, "/dev/std", 8) == 0) {
    const char* const which = path + 8;
    return ::strcmp(which, "in") == 0    ? 0
           : ::strcmp(which, "out") == 0 ? 1
           : ::strcmp(which, "err") == 0 ? 2
                                         : -1;
  }
  char own[32];
  ::snprintf(own, sizeof own, "/proc/%d/fd/", static_cast<int>(::getpid()));
  for (const char* folder :
       {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/", static_cast<const char*>(own)}) {
    const size_t size = ::strlen(folder);
    if (::strncmp(path, folder, size) != 0) continue;
    const char* const digits = path + size;
    const size_t count = ::strspn(digits, "0123456789");
    return count > 0 && count < 8 && digits[count] == '\0' ? ::atoi(digits) : -1;
  }
  return -1;
}

// Is the path's first component one of a prefix's, or ".."? Most are not, and cost no more.
bool starts_as_prefix(const char* path) {
  const size_t size = ::strcspn(path, "/");
  if (size == 2 && path[0] == '.' && path[1] == '.') return true;
  for (int i = 0; i < settings().count; ++i) {
    for (const char* at = settings().prefixes[i].path; *at == '/';) {
      const size_t length = ::strcspn(++at, "/");
      if (length == size && ::strncmp(at, path, size) == 0) return true;
      at += length;
    }
  }
  return false;
}

// Can a whole path lead to something of ours? Most cannot, as their text shows.
bool may_lead(const char* path) {
  const size_t size = ::strlen(path);
  if (::strncmp(path, "/dev/", 5) == 0 || ::strncmp(path, "/proc/", 6) == 0) return true;
  if (::strstr(path, "..") || ::strstr(path, "//") || ::strstr(path, "/./")) return true;
  if (size >= 2 && path[size - 2] == '/' && path[size - 1] == '.') return true;
  for (int i = 0; i < settings().count; ++i)
    if (below(path, settings().prefixes[i].path)) return true;
  return false;
}

// The path of a folder of the kernel's, and whether it is above a prefix.
bool leads_from(int base, char* folder) {
  char name[64];
  ::snprintf(name, sizeof name, "/proc/self/fd/%d", base);
  const long size = ::syscall(SYS_readlink, name, folder, PATH_MAX - 1);
  folder[size > 0 ? size : 0] = '\0';
  return folder[0] == '/' && leads_to_served(folder);
}

bool ends_as_directory(const char* path) {
  const size_t size = ::strlen(path);
  if (size == 0) return false;
  if (path[size - 1] == '/') return true;
  return path[size - 1] == '.' && (size == 1 || path[size - 2] == '/');
}

}  // namespace

bool active() {
  return settings().count != 0;
}

bool names_served(const char* text) {
  for (int i = 0; i < settings().count; ++i)
    if (::strstr(text, settings().prefixes[i].path)) return true;
  return false;
}

void moved_to(const char* shown) {
  if (shown)
    set_cwd(shown, true);
  else
    learn_cwd();
}

const char* served_cwd() {
  return active() && cwd().known && cwd().ours ? cwd().path : nullptr;
}

bool place_inside(const char* path, char* to) {
  char whole[PATH_MAX];
  if (!tidy(nullptr, path, true, whole)) return false;
  for (int i = 0; i < settings().count; ++i) {
    const Prefix& prefix = settings().prefixes[i];
    if (const char* const rest = below(whole, prefix.path)) return fill(prefix, rest, false, to);
  }
  return false;
}

Route::Route(int base, const char* given, bool follow) : path(given), directory(base) {
  if (!given || inside != 0 || !active() || given[0] == '\0') return;
  if (given[0] == '/') {
    if (!may_lead(given)) return;
    // Of ours the kernel would open the placeholder.
    const int fd = follow ? named_descriptor(given) : -1;
    if (fd >= 0 && is_served(fd)) {
      look_as(fd);
      return;
    }
  } else if (base == AT_FDCWD) {
    if (!cwd().known || (!cwd().ours && !cwd().leads && !::strstr(given, ".."))) return;
  } else if (!is_served(base) && !starts_as_prefix(given)) {
    return;
  }
  look(base, given, follow);
}

Route::~Route() {
  if (shown) ::free(shown);
}

// What a descriptor of ours was opened by.
__attribute__((noinline)) void Route::look_as(int fd) {
  char name[PATH_MAX];
  if (ask(&Served::shown, fd, name, sizeof name) == 0) look(AT_FDCWD, name, true);
}

__attribute__((noinline)) void Route::look(int base, const char* given, bool follow) {
  char folder[PATH_MAX], whole[PATH_MAX];
  const char* start = nullptr;
  bool from_ours = false;
  if (given[0] != '/' && base == AT_FDCWD) {
    from_ours = cwd().ours;
    start = cwd().path;
  } else if (given[0] != '/') {
    from_ours = is_served(base);
    if (from_ours ? ask(&Served::shown, base, folder, sizeof folder) != 0
                  : !leads_from(base, folder) && (given[0] != '.' || folder[0] != '/'))
      return;
    start = folder;
  }
  // With ".." as it is, the export goes up by itself, after links.
  if (!tidy(start, given, false, whole)) return;
  unsigned exact = 0;
  static_assert(kMostPrefixes <= 32);
  for (int i = 0; i < settings().count; ++i)
    if (below(whole, settings().prefixes[i].path)) exact |= 1u << i;
  if (!tidy(start, given, true, whole)) return;
  int found = 0;
  while (found < settings().count && !below(whole, settings().prefixes[found].path)) ++found;
  const bool ours = found < settings().count;
  if (!ours && !from_ours && exact == 0) return;
  shown = static_cast<char*>(::malloc(2 * PATH_MAX));
  if (!shown) return;
  ::strcpy(shown, whole);
  if (!ours) {
    path = shown;
    directory = AT_FDCWD;
    return;
  }
  const Prefix& prefix = settings().prefixes[found];
  if (exact & 1u << found) tidy(start, given, false, whole);
  char* const within = shown + PATH_MAX;
  if (!fill(prefix, below(whole, prefix.path), ends_as_directory(given), within)) return;
  to = To::served;
  target = {-1, within, shown, follow};
}

}  // namespace forebay::preload
