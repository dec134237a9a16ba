// A thread forks while another one's first call on a served file is loading the library, at the
// Nth allocation that this makes; the child uses a served file. It must find all of the library, or
// nothing; and nobody may wait for good, though the allocator has a lock that a fork takes (as
// jemalloc's does).
//
//   loading FOLDER N
//
// Ends with 0: all is well; 1: something is wrong; 2: loading allocates less often.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);

static const char* top;
static _Thread_local int loads;  // this thread's allocations are counted
static int countdown;
static atomic_int now, forked, forker;

// The first thread has locks that the other one may wait for; it goes on when that one does.
static int asleep(int thread) {
  char path[64], text[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  (void)!syscall(SYS_read, file, text, sizeof text - 1);
  syscall(SYS_close, file);
  return strstr(text, ") S ") != NULL;
}

static void count(void) {
  if (!loads || --countdown != 0) return;
  atomic_store(&now, 1);
  while (!atomic_load(&forked) && !asleep(atomic_load(&forker))) sched_yield();
}

static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static void take_heap(void) {
  pthread_mutex_lock(&heap);
}
static void give_heap(void) {
  pthread_mutex_unlock(&heap);
}

// The loader's too.
void* malloc(size_t size) {
  count();
  take_heap();
  void* const made = __libc_malloc(size);
  give_heap();
  return made;
}
void* calloc(size_t size, size_t n) {
  count();
  take_heap();
  void* const made = __libc_calloc(size, n);
  give_heap();
  return made;
}

static int use(const char* name) {
  char path[4096], back[4] = "";
  snprintf(path, sizeof path, "%s/%s", top, name);
  const int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
  return fd >= 0 && write(fd, "text", 4) == 4 && pread(fd, back, 4, 0) == 4 &&
         memcmp(back, "text", 4) == 0 && close(fd) == 0;
}

static void* fork_now(void* unused) {
  (void)unused;
  atomic_store(&forker, (int)syscall(SYS_gettid));
  while (!atomic_load(&now)) sched_yield();
  const pid_t pid = fork();
  if (pid == 0) _exit(use("child") ? 3 : 4);
  atomic_store(&forked, 1);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) status = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) fprintf(stderr, "the child: %d\n", status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 3 ? NULL : &now;
}

int main(int words, char** word) {
  if (words != 3) return 1;
  top = word[1];
  countdown = atoi(word[2]);
  pthread_atfork(take_heap, give_heap, give_heap);
  pthread_t thread;
  void* wrong = NULL;
  pthread_create(&thread, NULL, fork_now, NULL);
  while (!atomic_load(&forker)) sched_yield();
  loads = 1;
  const int used = use("parent");
  loads = 0;
  const int reached = atomic_exchange(&now, 1);
  pthread_join(thread, &wrong);
  if (!used) fprintf(stderr, "the parent: %s\n", strerror(errno));
  return !used || wrong ? 1 : reached ? 0 : 2;
}
