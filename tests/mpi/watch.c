/* Preloaded, it notes in the folder FOREBAY_TEST_WATCH what each rank reads and writes at offsets
 * of files: a line "read|write PATH OFFSET BEGIN END RECEIVED" for each call, with times in
 * microseconds and how many bytes the process's sockets brought meanwhile. Calls take
 * FOREBAY_TEST_PAUSE microseconds longer, or only those of rank FOREBAY_TEST_SLOW. A program may
 * ask for forebay_test_received(): what the sockets brought so far. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_long received;

long forebay_test_received(void) {
  return received;
}

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static const char* rank(void) {
  const char* of_openmpi = getenv("OMPI_COMM_WORLD_RANK");
  const char* of_mpich = getenv("PMI_RANK");
  return of_openmpi ? of_openmpi : of_mpich ? of_mpich : "";
}

struct call {
  long begin, received;
};

/* Is it a file of one of the names in FOREBAY_TEST_FILES? */
static int watched(int fd, char path[PATH_MAX]) {
  char link[64];
  const char* names = getenv("FOREBAY_TEST_FILES");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (!names || length <= 0) return 0;
  path[length] = 0;
  const char* name = strrchr(path, '/');
  return name && strstr(names, name + 1) != NULL;
}

static struct call begin(int fd) {
  const struct call call = {now(), received};
  const char* pause = getenv("FOREBAY_TEST_PAUSE");
  const char* slow = getenv("FOREBAY_TEST_SLOW");
  char path[PATH_MAX];
  if (pause && (!slow || strcmp(slow, rank()) == 0) && watched(fd, path))
    usleep((useconds_t)atol(pause));
  return call;
}

static void end(struct call call, const char* what, int fd, long offset) {
  const char* folder = getenv("FOREBAY_TEST_WATCH");
  char path[PATH_MAX], line[PATH_MAX + 128];
  if (!folder || !watched(fd, path)) return;
  const int n = snprintf(line, sizeof line, "%s %s %ld %ld %ld %ld\n", what, path, offset,
                         call.begin, now(), received - call.received);
  snprintf(path, sizeof path, "%s/%s", folder, rank());
  const int out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0 || write(out, line, (size_t)n) != n) abort();
  close(out);
}

#define NEXT(name)               \
  static __typeof__(name)* next; \
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, #name)

#define WATCH(what, call_next)        \
  const struct call call = begin(fd); \
  const ssize_t result = call_next;   \
  end(call, what, fd, offset);        \
  return result

ssize_t pread64(int fd, void* at, size_t length, off64_t offset) {
  NEXT(pread64);
  WATCH("read", next(fd, at, length, offset));
}
ssize_t preadv64(int fd, const struct iovec* pieces, int count, off64_t offset) {
  NEXT(preadv64);
  WATCH("read", next(fd, pieces, count, offset));
}
ssize_t preadv64v2(int fd, const struct iovec* pieces, int count, off64_t offset, int flags) {
  NEXT(preadv64v2);
  WATCH("read", next(fd, pieces, count, offset, flags));
}
ssize_t pwrite64(int fd, const void* at, size_t length, off64_t offset) {
  NEXT(pwrite64);
  WATCH("write", next(fd, at, length, offset));
}
ssize_t pwritev64(int fd, const struct iovec* pieces, int count, off64_t offset) {
  NEXT(pwritev64);
  WATCH("write", next(fd, pieces, count, offset));
}

static ssize_t count_received(ssize_t bytes) {
  if (bytes > 0) received += bytes;
  return bytes;
}
ssize_t readv(int fd, const struct iovec* pieces, int count) {
  NEXT(readv);
  return count_received(next(fd, pieces, count));
}
ssize_t recv(int fd, void* at, size_t length, int flags) {
  NEXT(recv);
  return count_received(next(fd, at, length, flags));
}
