// Descriptors: opened, duplicated, closed, and their flags.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace forebay::preload {

// Takes the slot: the file is one descriptor shorter.
int close_served(int fd) {
  void* const file = slots[fd].exchange(nullptr);
  const int done = next<"close", int>(fd);
  const int kept = errno;
  if (file > kOwn) ask(&Served::closed, file);
  errno = kept;
  return done;
}

// A descriptor that was closed behind our back (by libc itself, by syscall(2)).
int fresh(int fd) {
  if (static_cast<unsigned>(fd) >= unsigned{kMostDescriptors} || inside != 0) return fd;
  if (slots[fd].load(std::memory_order_relaxed) <= kOwn) return fd;
  const int kept = errno;
  ask(&Served::closed, slots[fd].exchange(nullptr));
  if (fd <= 2) standard_stream_changed(fd);
  errno = kept;
  return fd;
}

}  // namespace forebay::preload

namespace {

bool makes(int flags) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

// A folder is known by the name that it is opened by: with ".." in it, by the one that is right
// also where links are on the way.
__attribute__((noinline)) int open_served(const Route& route, int base, const char* path, int flags,
                                          mode_t mode) {
  char real[PATH_MAX];
  if (::strstr(path, "..") && !(flags & (O_CREAT | O_NOFOLLOW)) && physical(base, path, real)) {
    const Route there(AT_FDCWD, real);
    if (there.served()) return ask(&Served::open, there.target, flags, mode);
  }
  return ask(&Served::open, route.target, flags, mode);
}

int open_at(int base, const char* path, int flags, mode_t mode) {
  const bool last = !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
  return follow(base, path, last, [&](const Route& route) {
    if (!route.served() && route.directory == AT_FDCWD)
      return fresh(next<"open64", int>(route.path, flags, mode));
    if (!route.served())
      return fresh(next<"openat64", int>(route.directory, route.path, flags, mode));
    const int fd = open_served(route, base, path, flags, mode);
    if (fd >= 0 && fd <= 2) standard_stream_changed(fd);
    return fd;
  });
}

// The client's own descriptors go where no program looks for a free one.
int move_away(int fd) {
  if (inside == 0 || fd < 0) return fresh(fd);
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t top = limit.rlim_cur < 65536 ? limit.rlim_cur : 65536;
  const int high = top > 512 ? static_cast<int>(top) - 256 : static_cast<int>(top / 2);
  int own = next<"fcntl64", int>(fd, F_DUPFD_CLOEXEC, high);
  if (own < 0) own = fd;
  if (own != fd) next<"close", int>(fd);
  if (own < kMostDescriptors) set_slot(slots, slots_end, own, kOwn);
  return own;
}

// The client's connections. More than so many at once it does not have.
std::atomic<int> g_connections[16];

void remember_connection(int fd) {
  for (auto& one : g_connections) {
    int known = one.load();
    if (known != fd && known != 0 && slots[known].load() == kOwn) continue;
    if (one.compare_exchange_strong(known, fd)) return;
  }
}

// `copy` is a new descriptor of what `fd` is.
int duplicated(int fd, int copy) {
  if (copy < 0) return copy;
  fresh(copy);
  if (is_served(fd)) ask(&Served::duplicated, fd, copy);
  if (copy <= 2) standard_stream_changed(copy);
  return copy;
}

// Whatever `to` was is closed by the kernel in the same step.
int onto(int fd, int to, int flags, bool with_flags) {
  if (inside != 0) return with_flags ? next<"dup3", int>(fd, to, flags) : next<"dup2", int>(fd, to);
  if (is_own(to) || is_own(fd)) return errno = is_own(to) ? EBUSY : EBADF, -1;
  if (fd == to || !active())
    return with_flags ? next<"dup3", int>(fd, to, flags) : next<"dup2", int>(fd, to);
  if (to >= 0 && to <= 2) standard_stream_changed(-1 - to);
  void* const before =
      static_cast<unsigned>(to) < unsigned{kMostDescriptors} ? slots[to].load() : nullptr;
  const int copy = with_flags ? next<"dup3", int>(fd, to, flags) : next<"dup2", int>(fd, to);
  if (copy < 0) return copy;
  if (before > kOwn) slots[to].store(nullptr);
  duplicated(fd, copy);
  if (before > kOwn) ask(&Served::closed, before);
  return copy;
}

int control(int fd, int command, void* argument) {
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      return duplicated(fd, next<"fcntl64", int>(fd, command, argument));
    case F_GETFD:
    case F_SETFD:
      return next<"fcntl64", int>(fd, command, argument);
    case F_GETFL:
      return ask(&Served::get_flags, fd);
    case F_SETFL:
      return ask(&Served::set_flags, fd, static_cast<int>(reinterpret_cast<intptr_t>(argument)));
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
      return ask(&Served::lock, fd, command, static_cast<flock64*>(argument));
    default:
      return refuse("fcntl", "this command is not served", EINVAL);
  }
}

}  // namespace

namespace forebay::preload {

// In a child: a connection is its parent's, and must end when that one does, so that the server
// hears of it and frees its locks. The number stays taken: the client closes it one day.
void drop_parents_connections() {
  int null = -1;
  for (auto& one : g_connections) {
    const int fd = one.exchange(0);
    if (fd == 0 || slots[fd].load() != kOwn) continue;
    if (null < 0) null = next<"open64", int>("/dev/null", O_RDWR | O_CLOEXEC, 0);
    if (null >= 0) next<"dup3", int>(null, fd, O_CLOEXEC);
  }
  if (null >= 0) next<"close", int>(null);
}

}  // namespace forebay::preload

extern "C" {

// ---- Opening ----

int fb_openat(int base, const char* path, int flags, ...) {
  mode_t mode = 0;
  if (makes(flags)) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  return open_at(base, path, flags, mode);
}
int fb_open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (makes(flags)) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  return open_at(AT_FDCWD, path, flags, mode);
}
int fb_open_2(const char* path, int flags) {
  return open_at(AT_FDCWD, path, flags, 0);
}
int fb_openat_2(int base, const char* path, int flags) {
  return open_at(base, path, flags, 0);
}
int fb_creat(const char* path, mode_t mode) {
  return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

FOREBAY_EXPORT(open, fb_open);
FOREBAY_EXPORT(open64, fb_open);
FOREBAY_EXPORT(__open, fb_open);
FOREBAY_EXPORT(__open64, fb_open);
FOREBAY_EXPORT(__open_2, fb_open_2);
FOREBAY_EXPORT(__open64_2, fb_open_2);
FOREBAY_EXPORT(openat, fb_openat);
FOREBAY_EXPORT(openat64, fb_openat);
FOREBAY_EXPORT(__openat_2, fb_openat_2);
FOREBAY_EXPORT(__openat64_2, fb_openat_2);
FOREBAY_EXPORT(creat, fb_creat);
FOREBAY_EXPORT(creat64, fb_creat);

// ---- Closing and duplicating ----

int fb_close(int fd) {
  if (is_served(fd)) {
    if (fd <= 2) standard_stream_changed(-1 - fd);
    const int done = close_served(fd);
    if (fd <= 2) standard_stream_changed(fd);
    return done;
  }
  if (is_own(fd)) return errno = EBADF, -1;
  if (inside != 0 && static_cast<unsigned>(fd) < unsigned{kMostDescriptors}) {
    void* own = kOwn;
    slots[fd].compare_exchange_strong(own, nullptr);
  }
  return next<"close", int>(fd);
}

int fb_close_range(unsigned first, unsigned last, int flags) {
  constexpr int kCloexec = 1 << 2;
  if (!active() || (flags & kCloexec) || first > last)
    return next<"close_range", int>(first, last, flags);
  const auto end = static_cast<unsigned>(slots_end.load());
  unsigned from = first;
  for (unsigned fd = first; fd < end && fd <= last; ++fd) {
    void* const what = slots[fd].load(std::memory_order_relaxed);
    if (!what) continue;
    if (fd > from) next<"close_range", int>(from, fd - 1, flags);
    if (what > kOwn) fb_close(static_cast<int>(fd));
    from = fd + 1;
  }
  return from > last ? 0 : next<"close_range", int>(from, last, flags);
}
void fb_closefrom(int first) {
  if (!active()) return void(next<"closefrom", long>(first));
  fb_close_range(first < 0 ? 0u : static_cast<unsigned>(first), ~0u, 0);
}

int fb_dup(int fd) {
  if (is_own(fd)) return errno = EBADF, -1;
  return duplicated(fd, next<"dup", int>(fd));
}
int fb_dup2(int fd, int to) {
  return onto(fd, to, 0, false);
}
int fb_dup3(int fd, int to, int flags) {
  return onto(fd, to, flags, true);
}

FOREBAY_EXPORT(close, fb_close);
FOREBAY_EXPORT(__close, fb_close);
FOREBAY_EXPORT(close_range, fb_close_range);
FOREBAY_EXPORT(closefrom, fb_closefrom);
FOREBAY_EXPORT(dup, fb_dup);
FOREBAY_EXPORT(dup2, fb_dup2);
FOREBAY_EXPORT(__dup2, fb_dup2);
FOREBAY_EXPORT(dup3, fb_dup3);

// ---- Flags and locks ----

int fb_fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  void* const argument = va_arg(more, void*);
  va_end(more);
  if (is_served(fd)) return control(fd, command, argument);
  int done = next<"fcntl64", int>(fd, command, argument);
  if (command == F_DUPFD_CLOEXEC && inside != 0) done = move_away(done);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) fresh(done);
  if (command == F_DUPFD && inside == 0 && done >= 0 && done <= 2) standard_stream_changed(done);
  return done;
}
int fb_flock(int fd, int how) {
  return is_served(fd) ? ask(&Served::lock_whole, fd, how) : next<"flock", int>(fd, how);
}
int fb_lockf(int fd, int command, off64_t length) {
  if (!is_served(fd)) return next<"lockf64", int>(fd, command, length);
  flock64 lock = {};
  lock.l_type = command == F_ULOCK ? F_UNLCK : F_WRLCK;
  lock.l_whence = SEEK_CUR;
  lock.l_len = length;
  switch (command) {
    case F_TEST:
      if (ask(&Served::lock, fd, F_GETLK, &lock) != 0) return -1;
      return lock.l_type == F_UNLCK ? 0 : (errno = EACCES, -1);
    case F_ULOCK:
    case F_TLOCK:
      return ask(&Served::lock, fd, F_SETLK, &lock);
    case F_LOCK:
      return ask(&Served::lock, fd, F_SETLKW, &lock);
    default:
      return errno = EINVAL, -1;
  }
}

FOREBAY_EXPORT(fcntl, fb_fcntl);
FOREBAY_EXPORT(fcntl64, fb_fcntl);
FOREBAY_EXPORT(__fcntl, fb_fcntl);
FOREBAY_EXPORT(flock, fb_flock);
FOREBAY_EXPORT(lockf, fb_lockf);
FOREBAY_EXPORT(lockf64, fb_lockf);

// ---- Descriptors that the client makes for itself ----

int fb_socket(int domain, int type, int protocol) {
  const int fd = move_away(next<"socket", int>(domain, type, protocol));
  if (inside != 0 && fd >= 0) remember_connection(fd);
  return fd;
}
int fb_epoll_create1(int flags) {
  return move_away(next<"epoll_create1", int>(flags));
}
int fb_epoll_create(int size) {
  return move_away(next<"epoll_create", int>(size));
}
int fb_eventfd(unsigned start, int flags) {
  return move_away(next<"eventfd", int>(start, flags));
}
int fb_timerfd_create(int clock, int flags) {
  return move_away(next<"timerfd_create", int>(clock, flags));
}
int fb_memfd_create(const char* name, unsigned flags) {
  return move_away(next<"memfd_create", int>(name, flags));
}

// Those that come by a message: to the client (the server's doorbell), and a number that the
// program may use must never be one that the client writes to; or to the program, from another one
// that has a served file open.
static void received(msghdr* message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int* const all = reinterpret_cast<int*>(CMSG_DATA(part));
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      all[i] = move_away(all[i]);
      if (inside == 0) adopt_if_placeholder(all[i]);
    }
  }
}
ssize_t fb_recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t size = next<"recvmsg", ssize_t>(fd, message, flags);
  if (size >= 0 && message->msg_controllen != 0 && active()) received(message);
  return size;
}
int fb_recvmmsg(int fd, mmsghdr* all, unsigned count, int flags, timespec* timeout) {
  const int got = next<"recvmmsg", int>(fd, all, count, flags, timeout);
  for (int i = 0; i < got && active(); ++i)
    if (all[i].msg_hdr.msg_controllen != 0) received(&all[i].msg_hdr);
  return got;
}
int fb_socketpair(int domain, int type, int protocol, int* two) {
  const int done = next<"socketpair", int>(domain, type, protocol, two);
  for (int i = 0; done == 0 && i < 2; ++i) two[i] = move_away(two[i]);
  return done;
}
int fb_pipe2(int* two, int flags) {
  const int done = next<"pipe2", int>(two, flags);
  for (int i = 0; done == 0 && i < 2; ++i) two[i] = move_away(two[i]);
  return done;
}

FOREBAY_EXPORT(recvmsg, fb_recvmsg);
FOREBAY_EXPORT(recvmmsg, fb_recvmmsg);
FOREBAY_EXPORT(socketpair, fb_socketpair);
FOREBAY_EXPORT(pipe2, fb_pipe2);
FOREBAY_EXPORT(socket, fb_socket);
FOREBAY_EXPORT(epoll_create1, fb_epoll_create1);
FOREBAY_EXPORT(epoll_create, fb_epoll_create);
FOREBAY_EXPORT(eventfd, fb_eventfd);
FOREBAY_EXPORT(timerfd_create, fb_timerfd_create);
FOREBAY_EXPORT(memfd_create, fb_memfd_create);
}
