// Threads that open, write, duplicate and close served files of their own while others fork, spawn
// and exec; children that use files, streams and folders at once, or leave by _exit. Every byte is
// compared, and nobody may wait for good (the caller has a time limit).
//
//   races FOLDER SEED SECONDS
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 6

static const char* top;
static time_t end;
static atomic_int wrong, rounds, children;
static char** environment;

static void fail(const char* what, int n) {
  if (atomic_fetch_add(&wrong, 1) < 10) fprintf(stderr, "%s %d: %s\n", what, n, strerror(errno));
}
#define CHECK(good, n)           \
  do {                           \
    if (!(good)) fail(#good, n); \
  } while (0)

static void fill(char* to, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; ++i) to[i] = (char)(seed * 31 + i * 7 + (i >> 8));
}

// One file: written in pieces through a descriptor and its copies, read back whole.
static void one_file(const char* path, unsigned seed) {
  char bytes[9000], back[9000];
  fill(bytes, sizeof bytes, seed);
  const int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | (seed % 2 ? O_CLOEXEC : 0), 0644);
  CHECK(fd >= 0, (int)seed);
  if (fd < 0) return;
  CHECK(write(fd, bytes, 3000) == 3000, fd);
  const int copy = dup(fd);
  CHECK(write(copy, bytes + 3000, 3000) == 3000, copy);
  const int other = open("/dev/null", O_RDWR);
  CHECK(dup2(copy, other) == other, other);
  close(copy);
  CHECK(write(other, bytes + 6000, 3000) == 3000, other);
  CHECK(lseek(fd, 0, SEEK_CUR) == 9000, fd);
  close(fd);
  CHECK(pread(other, back, sizeof back, 0) == sizeof back, other);
  CHECK(memcmp(bytes, back, sizeof bytes) == 0, other);
  close(other);
}

static void one_stream(const char* path, unsigned seed) {
  char line[64], want[64];
  FILE* file = fopen(path, "w+");
  CHECK(file != NULL, (int)seed);
  if (!file) return;
  for (unsigned i = 0; i < 300; ++i) fprintf(file, "line %u of %u\n", i, seed);
  CHECK(fileno(file) > 2, fileno(file));
  rewind(file);
  for (unsigned i = 0; i < 300; ++i) {
    snprintf(want, sizeof want, "line %u of %u\n", i, seed);
    if (!fgets(line, sizeof line, file) || strcmp(line, want) != 0) {
      fail("a line", (int)i);
      break;
    }
  }
  fclose(file);
}

static void list(void) {
  DIR* const directory = opendir(top);
  CHECK(directory != NULL, 0);
  if (!directory) return;
  while (readdir(directory)) {
  }
  closedir(directory);
}

static void work_once(const char* who, unsigned seed) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", top, who);
  switch (seed % 4) {
    case 0:
      one_stream(path, seed);
      break;
    case 1:
      list();
      break;
    default:
      one_file(path, seed);
  }
  if (seed % 16 == 5) CHECK(unlink(path) == 0 || errno == ENOENT, (int)seed);
}

static void* work(void* argument) {
  const unsigned self = (unsigned)(size_t)argument;
  char name[32];
  snprintf(name, sizeof name, "thread%u", self);
  for (unsigned n = self * 7919; time(NULL) < end; ++n, atomic_fetch_add(&rounds, 1))
    work_once(name, n);
  return NULL;
}

static void reap(pid_t pid, int want) {
  int status = 0;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, (int)pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != want) fail("a child's end", status);
  atomic_fetch_add(&children, 1);
}

static void child(const char* name, unsigned seed) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", top, name);
  if (seed % 5 == 0) _exit(3);
  for (unsigned i = 0; i < 4; ++i) work_once(name, seed + i);
  const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (seed % 5 != 1 || fd < 0) _exit(atomic_load(&wrong) ? 4 : 3);
  dup2(fd, 1);
  execl("/bin/sh", "sh", "-c", "echo from a shell; exit 3", NULL);
  _exit(5);
}

static void* make_children(void* argument) {
  const unsigned self = (unsigned)(size_t)argument;
  char name[32];
  snprintf(name, sizeof name, "child%u", self);
  char* const words[] = {"sh", "-c", "exit 3", NULL};
  for (unsigned n = self; time(NULL) < end; n += 3) {
    pid_t pid = 0;
    if (n % 4 == 0) {
      if (posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environment) != 0) fail("spawn", (int)n);
    } else if (n % 4 == 1) {
      pid = vfork();
      if (pid == 0) {
        execv("/bin/sh", words);
        _exit(6);
      }
    } else {
      pid = fork();
      if (pid == 0) child(name, n);
    }
    reap(pid, 3);
  }
  return NULL;
}

static atomic_int ticks;
static void tick(int signal) {
  (void)signal;
  const int kept = errno;
  struct stat st;
  (void)!stat("/etc/hostname", &st);  // the kernel's, whatever was interrupted
  atomic_fetch_add(&ticks, 1);
  errno = kept;
}

int main(int count, char** words, char** environ_) {
  if (count < 4) return 2;
  top = words[1];
  environment = environ_;
  end = time(NULL) + atoi(words[3]);
  signal(SIGALRM, tick);
  const struct itimerval often = {{0, 7000}, {0, 7000}};
  setitimer(ITIMER_REAL, &often, NULL);
  pthread_t threads[THREADS + 2];
  const size_t seed = (size_t)atoi(words[2]);
  for (size_t i = 0; i < THREADS + 2; ++i)
    pthread_create(&threads[i], NULL, i < THREADS ? work : make_children, (void*)(seed + i));
  for (size_t i = 0; i < THREADS + 2; ++i) pthread_join(threads[i], NULL);
  printf("%d rounds, %d children, %d wrong\n", rounds, children, wrong);
  return wrong ? 1 : 0;
}
