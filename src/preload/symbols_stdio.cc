// stdio. libc's streams call the kernel from within libc, so a stream of a served file is one of
// fopencookie(3), whose functions are ours.
//
// The standard streams: while descriptor 0, 1 or 2 is a served file, `stdin`, `stdout` or `stderr`
// is another stream, of ours; what a program keeps of the old pointer goes to the kernel, which
// says EBADF.
#include <pthread.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

struct Stream {
  FILE* file = nullptr;
  int fd = -1;
  int orientation = 0;  // as fwide(3) gives it; libc's own for such streams is always narrow
  Stream* next = nullptr;
};

pthread_mutex_t g_streams_mutex = PTHREAD_MUTEX_INITIALIZER;
Stream* g_streams = nullptr;
std::atomic<int> g_stream_count{0};

Stream* stream_of(FILE* file) {
  if (g_stream_count.load(std::memory_order_relaxed) == 0) return nullptr;
  ::pthread_mutex_lock(&g_streams_mutex);
  Stream* found = g_streams;
  while (found && found->file != file) found = found->next;
  ::pthread_mutex_unlock(&g_streams_mutex);
  return found;
}

void forget(Stream* stream) {
  ::pthread_mutex_lock(&g_streams_mutex);
  for (Stream** at = &g_streams; *at; at = &(*at)->next)
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  ::pthread_mutex_unlock(&g_streams_mutex);
  g_stream_count.fetch_sub(1);
  ::free(stream);
}

ssize_t read_stream(void* cookie, char* to, size_t size) {
  return ::read(static_cast<Stream*>(cookie)->fd, to, size);
}
ssize_t write_stream(void* cookie, const char* from, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::write(static_cast<Stream*>(cookie)->fd, from + done, size - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}
int seek_stream(void* cookie, off64_t* at, int whence) {
  const off64_t to = ::lseek64(static_cast<Stream*>(cookie)->fd, *at, whence);
  if (to < 0) return -1;
  *at = to;
  return 0;
}
int close_stream(void* cookie) {
  auto* const stream = static_cast<Stream*>(cookie);
  const int fd = stream->fd;
  forget(stream);
  return ::close(fd);
}

FILE* make_stream(int fd, const char* mode) {
  auto* const stream = static_cast<Stream*>(::calloc(1, sizeof(Stream)));
  if (!stream) return nullptr;
  stream->fd = fd;
  stream->file =
      ::fopencookie(stream, mode, {read_stream, write_stream, seek_stream, close_stream});
  if (!stream->file) return ::free(stream), nullptr;
  stream->file->_fileno = fd;
  ::pthread_mutex_lock(&g_streams_mutex);
  stream->next = g_streams;
  g_streams = stream;
  ::pthread_mutex_unlock(&g_streams_mutex);
  g_stream_count.fetch_add(1);
  return stream->file;
}

// -1: no mode.
int flags_of(const char* mode) {
  int flags = 0;
  switch (mode[0]) {
    case 'r':
      break;
    case 'w':
      flags = O_CREAT | O_TRUNC;
      break;
    case 'a':
      flags = O_CREAT | O_APPEND;
      break;
    default:
      return -1;
  }
  bool both = false;
  for (const char* more = mode + 1; *more && *more != ','; ++more) {
    both = both || *more == '+';
    if (*more == 'x') flags |= O_EXCL;
    if (*more == 'e') flags |= O_CLOEXEC;
  }
  return flags | (both ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY);
}

// As libc does: whoever only appends stands at the end from the start.
void to_the_end(int fd, int flags) {
  if ((flags & O_APPEND) && (flags & O_ACCMODE) == O_WRONLY) ::lseek64(fd, 0, SEEK_END);
}

FILE* open_stream(const char* path, const char* mode) {
  const int flags = flags_of(mode);
  if (flags < 0) return errno = EINVAL, nullptr;
  const int fd = ::open64(path, flags, 0666);
  if (fd < 0) return nullptr;
  to_the_end(fd, flags);
  FILE* const file = make_stream(fd, mode);
  if (!file) ::close(fd);
  return file;
}

// What the stream wants must be what the descriptor was opened for; appending is switched on.
FILE* stream_over(int fd, const char* mode) {
  const int flags = flags_of(mode), now = ::fcntl(fd, F_GETFL);
  if (now < 0) return nullptr;
  const int may = now & O_ACCMODE, wants = flags & O_ACCMODE;
  if (flags < 0 || (may != O_RDWR && may != wants)) return errno = EINVAL, nullptr;
  if ((flags & O_APPEND) && !(now & O_APPEND)) {
    if (::fcntl(fd, F_SETFL, now | O_APPEND) != 0) return nullptr;
    to_the_end(fd, flags);
  }
  return make_stream(fd, mode);
}

// A stream stays where it is in memory while its mode changes (freopen).
void change_mode(FILE* file, int flags) {
  constexpr int kNoReads = 0x4, kNoWrites = 0x8, kAppends = 0x1000;  // glibc's, in FILE::_flags
  const int access = flags & O_ACCMODE;
  __fpurge(file);
  file->_flags &= ~(kNoReads | kNoWrites | kAppends);
  file->_flags |= (access == O_WRONLY   ? kNoReads
                   : access == O_RDONLY ? kNoWrites
                                        : 0) |
                  (flags & O_APPEND ? kAppends : 0);
  file->_offset = -1;  // unknown
}

// ---- Standard streams ----

FILE** const kVariables[3] = {&stdin, &stdout, &stderr};
FILE* g_original[3];
FILE* g_ours[3];

void use_ours(int fd) {
  FILE*& now = *kVariables[fd];
  if (now == g_ours[fd] && now) return;
  if (!g_ours[fd]) {
    g_ours[fd] = make_stream(fd, fd == 0 ? "r" : "w");
    if (!g_ours[fd]) return;
    if (fd == 2) ::setvbuf(g_ours[fd], nullptr, _IONBF, 0);
  }
  __fpurge(g_ours[fd]);
  ::clearerr(g_ours[fd]);
  // What the program has printed and not flushed goes where the descriptor leads now.
  FILE* const before = now;
  if (fd != 0 && __fpending(before) > 0) {
    ::fwrite(before->_IO_write_base, 1, __fpending(before), g_ours[fd]);
    __fpurge(before);
  }
  g_original[fd] = before;
  now = g_ours[fd];
}

void use_libcs(int fd) {
  if (g_ours[fd] && *kVariables[fd] == g_ours[fd]) *kVariables[fd] = g_original[fd];
}

// A child that is forked while another thread has the list would wait for it for good.
void hold_streams() {
  ::pthread_mutex_lock(&g_streams_mutex);
}
void release_streams() {
  ::pthread_mutex_unlock(&g_streams_mutex);
}

}  // namespace

namespace forebay::preload {

int* stream_orientation(FILE* file) {
  Stream* const stream = stream_of(file);
  return stream ? &stream->orientation : nullptr;
}

void keep_streams_over_fork() {
  ::pthread_atfork(hold_streams, release_streams, release_streams);
}

void standard_stream_changed(int fd) {
  if (inside != 0) return;
  const int kept = errno;
  if (fd < 0) {  // is about to
    const int which = -1 - fd;
    if (which != 0 && g_ours[which] && *kVariables[which] == g_ours[which]) ::fflush(g_ours[which]);
  } else if (is_served(fd)) {
    use_ours(fd);
  } else {
    use_libcs(fd);
  }
  errno = kept;
}

void flush_streams() {
  if (::pthread_mutex_trylock(&g_streams_mutex) != 0) return;
  for (Stream* stream = g_streams; stream; stream = stream->next) {
    if (__fwriting(stream->file) && ::ftrylockfile(stream->file) == 0) {
      ::fflush_unlocked(stream->file);
      ::funlockfile(stream->file);
    }
  }
  ::pthread_mutex_unlock(&g_streams_mutex);
}

}  // namespace forebay::preload

extern "C" {

FILE* fb_fopen(const char* path, const char* mode) {
  const Route route(AT_FDCWD, path);
  if (route.served()) return open_stream(path, mode);
  return next_pointer<"fopen64", FILE*>(route.path, mode);
}
FILE* fb_fdopen(int fd, const char* mode) {
  if (is_served(fd)) return stream_over(fd, mode);
  return next_pointer<"fdopen", FILE*>(fd, mode);
}
int fb_fileno(FILE* file) {
  if (const Stream* const stream = stream_of(file)) return stream->fd;
  return next<"fileno", int>(file);
}

// A stream of ours stays one, and leads elsewhere; libc's standard ones become ours.
FILE* fb_freopen(const char* path, const char* mode, FILE* file) {
  const Route route(AT_FDCWD, path);
  Stream* const stream = stream_of(file);
  if (!route.served() && !stream) return next_pointer<"freopen64", FILE*>(route.path, mode, file);
  const int flags = flags_of(mode);
  if (flags < 0) return errno = EINVAL, nullptr;
  int standard = -1;
  for (int fd = 0; fd <= 2; ++fd)
    if (*kVariables[fd] == file) standard = fd;
  if (!stream && standard < 0) {
    refuse("freopen", "only the standard streams can be led to a served file", ENOTSUP);
    return nullptr;
  }
  ::fflush(file);
  const int to = stream ? stream->fd : standard;
  char same[32];
  ::snprintf(same, sizeof same, "/dev/fd/%d", to);
  const int fd = ::open64(path ? path : same, flags, 0666);
  if (fd < 0) return nullptr;
  to_the_end(fd, flags);
  if (fd != to) {
    if (::dup3(fd, to, flags & O_CLOEXEC) < 0) return ::close(fd), nullptr;
    ::close(fd);
  }
  FILE* const now = standard >= 0 ? *kVariables[standard] : file;
  if (stream_of(now)) change_mode(now, flags);
  ::clearerr(now);
  return now;
}

FOREBAY_EXPORT(fopen, fb_fopen);
FOREBAY_EXPORT(fopen64, fb_fopen);
FOREBAY_EXPORT(fdopen, fb_fdopen);
FOREBAY_EXPORT(fileno, fb_fileno);
FOREBAY_EXPORT(fileno_unlocked, fb_fileno);
FOREBAY_EXPORT(freopen, fb_freopen);
FOREBAY_EXPORT(freopen64, fb_freopen);
}
