// A thread flushes all streams, and with them (libc has its list of streams locked meanwhile) the
// first bytes to a served standard output; another one forks, which takes the same lock. Nobody may
// wait for good (the caller has a time limit).
//
//   flushing > SERVED
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int flusher, forking, flushed;

static int asleep(int thread) {
  char path[64], text[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  (void)!read(file, text, sizeof text - 1);
  close(file);
  return strstr(text, ") S ") != NULL;
}

static void* flush(void* unused) {
  atomic_store(&flusher, (int)syscall(SYS_gettid));
  while (!atomic_load(&forking)) sched_yield();
  fflush(NULL);
  atomic_store(&flushed, 1);
  return unused;
}

// Our handler is older than the library's, and called after it.
static void prepare(void) {
  atomic_store(&forking, 1);
  while (!atomic_load(&flushed) && !asleep(atomic_load(&flusher))) sched_yield();
}

int main(void) {
  pthread_t thread;
  pthread_atfork(prepare, NULL, NULL);
  printf("text\n");
  pthread_create(&thread, NULL, flush, NULL);
  while (!atomic_load(&flusher)) sched_yield();
  const pid_t pid = fork();
  if (pid == 0) _exit(3);
  int status = 0;
  waitpid(pid, &status, 0);
  pthread_join(thread, NULL);
  return WEXITSTATUS(status) == 3 ? 0 : 1;
}
