#include "preload/shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/placeholder.h"

namespace forebay::preload {

Slot slots[kMostDescriptors];
std::atomic<int> slots_end{0};
thread_local int inside = 0;
thread_local int following = 0;

namespace {

std::atomic<const Served*> g_served{nullptr};
std::atomic<unsigned> g_refusals{0};
std::atomic<bool> g_begun{false};

long raw_write(int fd, const char* text, size_t size) {
  return ::syscall(SYS_write, fd, text, size);
}

// Beside this library, under its own name. By any number of threads at once, without a lock of
// ours: the loader has one, and whoever loads may have it already (a constructor of a library's).
const Served* load(bool quietly) {
  Dl_info self;
  char path[PATH_MAX];
  if (::dladdr(reinterpret_cast<void*>(&find_next), &self) == 0) return nullptr;
  const char* const slash = ::strrchr(self.dli_fname, '/');
  const int folder = slash ? static_cast<int>(slash - self.dli_fname) : 1;
  ::snprintf(path, sizeof path, "%.*s/libforebay-served.so", folder, slash ? self.dli_fname : ".");
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const entry = library ? ::dlsym(library, "forebay_served") : nullptr;
  if (!entry && quietly) return nullptr;
  if (!entry) {
    const char* const why = ::dlerror();
    char line[PATH_MAX + 64];
    ::snprintf(line, sizeof line, "forebay: nothing can be served: %s\n", why ? why : path);
    say(line);
    return nullptr;
  }
  static constinit const Shim shim = {slots, &slots_end, &say, [] { g_refusals.fetch_add(1); },
                                      &place_inside};
  return reinterpret_cast<decltype(&forebay_served)>(entry)(&shim);
}

// What came over an exec: placeholders, found by their names.
void adopt_inherited() {
  const int folder = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder < 0) return;
  alignas(dirent64) char buffer[4096];
  for (;;) {
    const long bytes = ::syscall(SYS_getdents64, folder, buffer, sizeof buffer);
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
      adopt_if_placeholder(::atoi(entry->d_name));
    }
  }
  ::syscall(SYS_close, folder);
}

// First of all libraries (-z initfirst), because libstdc++ looks at stdout when it begins; so libc
// does not know the environment yet.
__attribute__((constructor)) void begin(int, char**, char** environment) {
  if (!environ) environ = environment;
  if (!active()) return;
  const int kept = errno;
  (void)served_cwd();  // learned now, while there is one thread
  keep_streams_over_fork();
  ::pthread_atfork(nullptr, nullptr, drop_parents_connections);
  (void)next_function<"fork">();  // a fork waits for no library that another thread is loading
  adopt_inherited();
  for (int fd = 0; fd <= 2; ++fd)
    if (is_served(fd)) standard_stream_changed(fd);
  g_begun.store(true, std::memory_order_relaxed);
  errno = kept;
}

__attribute__((destructor)) void end() {
  const Served* const served = served_if_loaded();
  if (!served) return;
  flush_streams();
  const Inside in;
  served->leave();
}

}  // namespace

void adopt_if_placeholder(int fd) {
  if (static_cast<unsigned>(fd) >= unsigned{kMostDescriptors}) return;
  char path[64], link[64];
  ::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const long size = ::syscall(SYS_readlink, path, link, sizeof link);
  constexpr size_t kSize = sizeof kPlaceholderLink - 1;
  if (size < static_cast<long>(kSize) || ::memcmp(link, kPlaceholderLink, kSize) != 0) return;
  set_slot(slots, slots_end, fd, kInherited);
}

bool begun() {
  return g_begun.load(std::memory_order_relaxed);
}

const Served* served_if_loaded() {
  return g_served.load(std::memory_order_acquire);
}

const Served* load_served() {
  const Served* served = served_if_loaded();
  if (served) return served;
  const Inside in;
  served = load(false);
  if (served) g_served.store(served, std::memory_order_release);
  if (!served) errno = EIO;
  return served;
}

void load_before_fork() {
  if (served_if_loaded() || inside != 0 || !active() || __libc_single_threaded) return;
  const int kept = errno;
  const Inside in;
  if (const Served* const served = load(true)) g_served.store(served, std::memory_order_release);
  errno = kept;
}

void* find_next(const char* name) {
  const int kept = errno;
  void* const function = ::dlsym(RTLD_NEXT, name);
  errno = kept;
  return function;
}

void say(const char* line) {
  const int kept = errno;
  const size_t size = ::strlen(line);
  if (slots[2].load() > kOwn && g_served.load() && inside == 0) {
    const iovec piece = {const_cast<char*>(line), size};
    ask(&Served::move, Transfer{2, true, &piece, 1, 0, false, false, false});
  } else {
    (void)raw_write(2, line, size);
  }
  errno = kept;
}

void leads_out() {
  refuse("link", "one leads out of the served path, and is not followed for this call", EXDEV);
}

int refuse(const char* call, const char* why, int code) {
  // So many different calls may be refused with a line each.
  static std::atomic<const char*> said[64];
  g_refusals.fetch_add(1);
  for (auto& one : said) {
    const char* expected = nullptr;
    if (!one.compare_exchange_strong(expected, call)) {
      if (::strcmp(expected, call) == 0) break;
      continue;
    }
    char line[512];
    ::snprintf(line, sizeof line, "forebay: %s: %s\n", call, why);
    say(line);
    break;
  }
  errno = code;
  return -1;
}

}  // namespace forebay::preload
