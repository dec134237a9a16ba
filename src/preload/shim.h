// What every function of the shim works with: whose call it is, and how to make it of the next
// library's, which is libc unless something else is preloaded too.
//
// Nothing here may need more than libc, or run before it is asked: this is in every process. On the
// way to the kernel nothing is taken from the heap, and little of the stack: threads may have 16
// KiB.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include <type_traits>

#include "preload/served.h"

namespace forebay::preload {

extern Slot slots[kMostDescriptors];
extern std::atomic<int> slots_end;

// While a function of the other library runs, its calls are its own; and the thread is not
// cancelled in the middle of them.
extern thread_local int inside __attribute__((tls_model("initial-exec")));
class Inside {
 public:
  Inside() {
    if (inside++ == 0) ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
  }
  ~Inside() {
    if (--inside == 0) ::pthread_setcancelstate(cancel_, nullptr);
  }
  Inside(const Inside&) = delete;

 private:
  int cancel_ = PTHREAD_CANCEL_ENABLE;
};

// An open file of ours? One load.
inline bool is_served(int fd) {
  if (static_cast<unsigned>(fd) >= unsigned{kMostDescriptors} || inside != 0) return false;
  return slots[fd].load(std::memory_order_acquire) > kOwn;
}
inline bool is_own(int fd) {
  return static_cast<unsigned>(fd) < unsigned{kMostDescriptors} && inside == 0 &&
         slots[fd].load(std::memory_order_relaxed) == kOwn;
}

// The other library's functions, which it is loaded for; null: it cannot be, errno says EIO and a
// line why.
const Served* load_served();
const Served* served_if_loaded();
// A child has what there was at the fork: of a library that another thread was just loading, a
// part, which the child's loader takes for the whole. So a process with threads has all of it
// before. It is not waited for in pthread_atfork(3): an allocator's handler may have taken its
// locks by then.
void load_before_fork();

// Inside follow() (below): who asks will look where a link leads that leads out.
extern thread_local int following __attribute__((tls_model("initial-exec")));
void leads_out();  // nobody will: a line, and EXDEV

// Calls one, with our own functions out of the way.
template <class R, class... P, class... A>
R ask(R (*Served::*function)(P...), A&&... arguments) {
  const Served* const served = load_served();
  if constexpr (std::is_void_v<R>) {
    const Inside in;
    if (served) (served->*function)(static_cast<A&&>(arguments)...);
  } else if constexpr (std::is_pointer_v<R>) {
    const Inside in;
    return served ? (served->*function)(static_cast<A&&>(arguments)...) : nullptr;
  } else {
    R result(-1);
    if (served) {
      const Inside in;
      result = (served->*function)(static_cast<A&&>(arguments)...);
    }
    if (result == R(-1) && errno == kLeadsOut && following == 0) leads_out();
    return result;
  }
}

// One line on standard error, wherever that leads.
void say(const char* line);
// What cannot be served: a line, once for each call, and the errno. Returns -1.
int refuse(const char* call, const char* why, int code);

// ---- The next library's functions ----

template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&s)[N]) {  // NOLINT: as a string
    for (size_t i = 0; i < N; ++i) text[i] = s[i];
  }
};

void* find_next(const char* name);

// Looked up once: dlsym(3) takes the loader's lock.
template <Name kName>
void* next_function() {
  static std::atomic<void*> found{nullptr};
  void* function = found.load(std::memory_order_relaxed);
  if (!function) found.store(function = find_next(kName.text), std::memory_order_relaxed);
  if (!function) errno = ENOSYS;
  return function;
}

template <Name kName, class R, class... A>
R next(A... arguments) {
  void* const function = next_function<kName>();
  return function ? reinterpret_cast<R (*)(A...)>(function)(arguments...) : R(-1);
}

template <Name kName, class R, class... A>
R next_pointer(A... arguments) {
  void* const function = next_function<kName>();
  return function ? reinterpret_cast<R (*)(A...)>(function)(arguments...) : nullptr;
}
template <Name kName, class... A>
void next_void(A... arguments) {
  if (void* const function = next_function<kName>())
    reinterpret_cast<void (*)(A...)>(function)(arguments...);
}

// ---- Where a name leads ----

struct Route {
  enum class To { kernel, served };
  To to = To::kernel;
  const char* path = nullptr;  // for the kernel: as it was given, or whole if that leads nowhere
  int directory = -100;        // AT_FDCWD if the path is whole
  Target target;
  char* shown = nullptr;  // whole; null if nothing of ours is met

  Route(int base, const char* given, bool follow = true);
  ~Route();
  Route(const Route&) = delete;
  bool served() const { return to == To::served; }

 private:
  void look(int base, const char* given, bool follow);
  void look_as(int fd);
};

bool begun();   // libc can be used; before that, allocators may call us
bool active();  // something is to be served in this process
// The working directory has changed to this one of ours, or (null) to one of the kernel's.
void moved_to(const char* shown);
const char* served_cwd();                // null: it is the kernel's
bool leads_to_served(const char* path);  // it is one that is served, or above it
bool names_served(const char* text);     // a served path stands somewhere in it
// The name without links, "." and ".." of what is there (PATH_MAX bytes). False: nothing is, or
// with `missing` not even the folder that it would be in.
bool physical(int base, const char* path, char* to, bool missing = false);
// The same, of what may be missing, and without `follow` may be a link.
bool physical_place(int base, const char* path, bool follow, char* to);
bool place_inside(const char* path, char* to);  // Shim::inside

// Makes a call about a name. If a link on the way leads out of what is served, it is made again,
// about the place that this leads to.
template <class Call>
__attribute__((noinline)) auto follow_out(int base, const char* path, bool last, Call& call)
    -> decltype(call(Route(0, ""))) {
  char real[PATH_MAX];
  if (!physical_place(base, path, last, real)) return -1;
  return call(Route(-100, real, last));
}
template <class Call>
auto follow(int base, const char* path, bool last, Call&& call) -> decltype(call(Route(0, ""))) {
  ++following;
  const auto result = call(Route(base, path, last));
  --following;
  if (result != -1 || errno != kLeadsOut) return result;
  return follow_out(base, path, last, call);
}

// ---- Between the files of the shim ----
void to_stat(const struct ::statx& from, struct stat* to);
void standard_stream_changed(int fd);  // 0, 1 or 2 is another file now
void flush_streams();
void keep_streams_over_fork();
int* stream_orientation(FILE* file);  // of a stream of ours, else null
int close_served(int fd);
void drop_parents_connections();
void adopt_if_placeholder(int fd);  // it came from another process: is it an open file of ours?
int fresh(int fd);  // the kernel has just made it: what we knew of the number is no more

}  // namespace forebay::preload

// Gives one of our functions a name of libc's. By alias, because libc's headers give the same name
// other types (open64 for open and the like).
#define FOREBAY_EXPORT(symbol, function)                         \
  extern "C" decltype(function) export_##symbol __asm__(#symbol) \
      __attribute__((alias(#function), visibility("default"), used))
