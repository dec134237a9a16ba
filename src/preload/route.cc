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

// From a folder of the kernel's, which is above a prefix: its path.
bool leads_from(int base, const char* path, char* folder) {
  if (!starts_as_prefix(path)) return false;
  char name[64];
  ::snprintf(name, sizeof name, "/proc/self/fd/%d", base);
  const long size = ::syscall(SYS_readlink, name, folder, PATH_MAX - 1);
  if (size <= 0 || folder[0] != '/') return false;
  folder[size] = '\0';
  return path[0] == '.' || leads_to_served(folder);
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
  char folder[PATH_MAX], open_as[PATH_MAX];
  // Of ours the kernel would open the placeholder.
  if (given[0] == '/' && follow && (given[1] == 'd' || given[1] == 'p')) {
    const int fd = named_descriptor(given);
    if (fd >= 0 && is_served(fd) && ask(&Served::shown, fd, open_as, sizeof open_as) == 0)
      given = open_as;
  }
  const bool up = ::strstr(given, "..") != nullptr;
  const char* start = nullptr;
  bool from_ours = false;
  if (given[0] != '/') {
    if (base == AT_FDCWD) {
      from_ours = cwd().ours;
      if (!cwd().known || (!cwd().ours && !cwd().leads && !up)) return;
      start = cwd().path;
    } else {
      from_ours = is_served(base);
      if (from_ours ? ask(&Served::shown, base, folder, sizeof folder) != 0
                    : !leads_from(base, given, folder))
        return;
      start = folder;
    }
  }
  // With ".." as it is, the export goes up by itself, after links.
  if (!tidy(start, given, true, shown) || !tidy(start, given, false, within)) return;
  char soft[PATH_MAX];
  ::strcpy(soft, within);
  bool through = from_ours;
  for (int i = 0; i < settings().count; ++i) {
    const Prefix& prefix = settings().prefixes[i];
    const char* const exact = below(soft, prefix.path);
    through = through || exact;
    const char* const rest = below(shown, prefix.path);
    if (!rest) continue;
    if (!fill(prefix, exact ? exact : rest, ends_as_directory(given), within)) return;
    to = To::served;
    target = {-1, within, shown, follow};
    return;
  }
  if (!through) return;
  path = shown;
  directory = AT_FDCWD;
}

}  // namespace forebay::preload
