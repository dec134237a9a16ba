// Processes: programs that are started, and how this one ends.
#include <pthread.h>
#include <pty.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

constexpr int kMostWords = 1 << 20;

// "#!" and what follows it, in place: the interpreter and its one argument.
struct Script {
  char text[256];
  char* interpreter = nullptr;
  char* argument = nullptr;

  explicit Script(int fd) {  // -1: of none
    const ssize_t n = fd < 0 ? -1 : ::pread64(fd, text, sizeof text - 1, 0);
    if (n < 3 || text[0] != '#' || text[1] != '!') return;
    text[n] = '\0';
    text[::strcspn(text, "\n")] = '\0';
    char* at = text + 2 + ::strspn(text + 2, " \t");
    if (!*at) return;
    interpreter = at;
    at += ::strcspn(at, " \t");
    if (!*at) return;
    *at++ = '\0';
    at += ::strspn(at, " \t");
    for (size_t end = ::strlen(at); end > 0 && (at[end - 1] == ' ' || at[end - 1] == '\t');)
      at[--end] = '\0';
    if (*at) argument = at;
  }
};

void before_exec() {
  const Served* const served = served_if_loaded();
  if (!served || inside != 0) return;
  const Inside in;
  served->before_exec();
}

// What the kernel makes of a script's words: the interpreter, its argument, the script, the rest.
struct ScriptWords {
  char** all = nullptr;

  ScriptWords(const Script& script, const char* path, char* const* words) {
    size_t count = 0, n = 0;
    while (words && words[count]) ++count;
    auto** const made = static_cast<const char**>(::malloc(sizeof(char*) * (count + 4)));
    if (!made) {
      errno = ENOMEM;
      return;
    }
    made[n++] = script.interpreter;
    if (script.argument) made[n++] = script.argument;
    made[n++] = path;
    for (size_t i = 1; i < count; ++i) made[n++] = words[i];
    made[n] = nullptr;
    all = const_cast<char**>(made);
  }
  ~ScriptWords() {
    const int kept = errno;
    ::free(all);
    errno = kept;
  }
  ScriptWords(const ScriptWords&) = delete;
};

int run(const char* path, char* const* words, char* const* environment);

// A served program runs from a copy in memory.
int run_served(const Route& route, const char* path, char* const* words, char* const* environment) {
  if (ask(&Served::access, route.target, X_OK, true) != 0) return -1;
  struct statx found;
  if (ask(&Served::status, route.target, &found) != 0) return -1;
  if (!S_ISREG(found.stx_mode)) return errno = EACCES, -1;
  const int fd = ask(&Served::copy, route.target);
  if (fd < 0) return -1;
  const Script script(fd);
  if (script.interpreter) {
    const ScriptWords all(script, path, words);
    if (all.all) run(script.interpreter, all.all, environment);
  } else {
    before_exec();
    ::syscall(SYS_execveat, fd, "", words, environment, AT_EMPTY_PATH);
  }
  const int kept = errno;
  const Inside in;
  ::close(fd);
  errno = kept;
  return -1;
}

int run(const char* path, char* const* words, char* const* environment) {
  return follow(AT_FDCWD, path, true, [&](const Route& route) {
    if (route.served()) return run_served(route, path, words, environment);
    before_exec();
    return next<"execve", int>(route.path, words, environment);
  });
}

// The words of execl(3), from its second on, and perhaps an environment after them.
struct Words {
  char** all = nullptr;
  char* const* environment = environ;

  Words(const char* first, va_list more, bool with_environment) {
    va_list again;
    va_copy(again, more);
    size_t count = 1;
    while (first && va_arg(again, char*) && count < kMostWords) ++count;
    va_end(again);
    all = static_cast<char**>(::malloc(sizeof(char*) * (count + 1)));
    if (!all) return;
    all[0] = const_cast<char*>(first);
    for (size_t i = 1; first && i <= count; ++i) all[i] = va_arg(more, char*);
    if (with_environment) environment = va_arg(more, char* const*);
  }
  ~Words() { ::free(all); }
  Words(const Words&) = delete;
};

// Where one of PATH's folders is served (or the working directory, and it is relative), they are
// searched here, because libc asks the kernel. `take` starts a program by its name and returns an
// errno; 0: it did.
bool path_is_served() {
  const char* const path = ::getenv("PATH");
  return active() && inside == 0 && path && (names_served(path) || served_cwd());
}
template <class Take>
int search_path(const char* file, Take&& take) {
  int failed = ENOENT;
  for (const char* at = ::getenv("PATH"); at;) {
    const size_t size = ::strcspn(at, ":");
    char name[PATH_MAX];
    const int length = ::snprintf(name, sizeof name, "%.*s%s%s", static_cast<int>(size), at,
                                  size ? "/" : "", file);
    at = at[size] ? at + size + 1 : nullptr;
    if (length >= static_cast<int>(sizeof name)) continue;
    const int code = take(static_cast<const char*>(name));
    if (code == 0) return 0;
    if (code == EACCES) failed = EACCES;
    if (code != EACCES && code != ENOENT && code != ENOTDIR && code != ESTALE) return code;
  }
  return failed;
}

// A file without "#!" that is no program is the shell's.
int run_or_shell(const char* path, char* const* words, char* const* environment) {
  run(path, words, environment);
  if (errno != ENOEXEC) return -1;
  char shell[] = "/bin/sh";
  Script as_shell(-1);
  as_shell.interpreter = shell;
  const ScriptWords all(as_shell, path, words);
  return all.all ? run(shell, all.all, environment) : -1;
}

int search(const char* file, char* const* words, char* const* environment) {
  if (file && ::strchr(file, '/')) return run_or_shell(file, words, environment);
  if (file && *file && path_is_served()) {
    errno = search_path(file, [&](const char* path) {
      if (::access(path, F_OK) != 0) return errno;
      run_or_shell(path, words, environment);
      return errno;
    });
    return -1;
  }
  before_exec();
  return next<"execvpe", int>(file, words, environment);
}

void leave() {
  if (const Served* const served = served_if_loaded(); served && inside == 0) {
    const Inside in;
    served->leave();
  }
}

}  // namespace

extern "C" {

// ---- Starting programs ----

int fb_execve(const char* path, char* const* words, char* const* environment) {
  return run(path, words, environment);
}
int fb_execv(const char* path, char* const* words) {
  return run(path, words, environ);
}
int fb_execvpe(const char* file, char* const* words, char* const* environment) {
  return search(file, words, environment);
}
int fb_execvp(const char* file, char* const* words) {
  return search(file, words, environ);
}
int fb_execl(const char* path, const char* first, ...) {
  va_list more;
  va_start(more, first);
  const Words words(first, more, false);
  va_end(more);
  return run(path, words.all, environ);
}
int fb_execle(const char* path, const char* first, ...) {
  va_list more;
  va_start(more, first);
  const Words words(first, more, true);
  va_end(more);
  return run(path, words.all, words.environment);
}
int fb_execlp(const char* file, const char* first, ...) {
  va_list more;
  va_start(more, first);
  const Words words(first, more, false);
  va_end(more);
  return search(file, words.all, environ);
}
int fb_fexecve(int fd, char* const* words, char* const* environment) {
  if (!is_served(fd)) {
    before_exec();
    return next<"fexecve", int>(fd, words, environment);
  }
  const Target target{fd, nullptr, nullptr, true};
  const int copy = ask(&Served::copy, target);
  if (copy < 0) return -1;
  before_exec();
  ::syscall(SYS_execveat, copy, "", words, environment, AT_EMPTY_PATH);
  const int kept = errno;
  const Inside in;
  ::close(copy);
  errno = kept;
  return -1;
}
int fb_execveat(int base, const char* path, char* const* words, char* const* environment,
                int flags) {
  if ((flags & AT_EMPTY_PATH) && path && !*path && is_served(base))
    return fb_fexecve(base, words, environment);
  const Route route(base, path, !(flags & AT_SYMLINK_NOFOLLOW));
  if (route.served()) return run_served(route, route.shown, words, environment);
  before_exec();
  return next<"execveat", int>(route.directory, route.path, words, environment, flags);
}

pid_t fb_fork() {
  load_before_fork();
  return next<"fork", pid_t>();
}
int fb_forkpty(int* terminal, char* name, const termios* settings, const winsize* size) {
  load_before_fork();
  return next<"forkpty", int>(terminal, name, settings, size);
}
// A child that shares our memory but not our descriptors would break both.
pid_t fb_vfork() {
  return ::fork();
}

int fb_posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                   const posix_spawnattr_t* attributes, char* const* words,
                   char* const* environment) {
  const Route route(AT_FDCWD, path);
  if (!route.served())
    return next<"posix_spawn", int>(pid, route.path, actions, attributes, words, environment);
  char real[PATH_MAX];
  if (physical(AT_FDCWD, path, real) && !Route(AT_FDCWD, real).served())
    return next<"posix_spawn", int>(pid, static_cast<const char*>(real), actions, attributes, words,
                                    environment);
  if (ask(&Served::access, route.target, X_OK, true) != 0) return errno;
  const int fd = ask(&Served::copy, route.target);
  if (fd < 0) return errno == EISDIR ? EACCES : errno;
  const Script script(fd);
  char copy[64];
  ::snprintf(copy, sizeof copy, "/proc/self/fd/%d", fd);
  int done = ENOMEM;
  if (!script.interpreter) {
    done = next<"posix_spawn", int>(pid, static_cast<const char*>(copy), actions, attributes, words,
                                    environment);
  } else if (const ScriptWords all(script, path, words); all.all) {
    done = fb_posix_spawn(pid, script.interpreter, actions, attributes, all.all, environment);
  }
  const Inside in;
  ::close(fd);
  return done;
}
int fb_posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                    const posix_spawnattr_t* attributes, char* const* words,
                    char* const* environment) {
  const auto start = [&](const char* path) {
    return fb_posix_spawn(pid, path, actions, attributes, words, environment);
  };
  if (file && ::strchr(file, '/')) return start(file);
  if (file && *file && path_is_served()) return search_path(file, start);
  return next<"posix_spawnp", int>(pid, file, actions, attributes, words, environment);
}
int fb_spawn_addopen(posix_spawn_file_actions_t* actions, int fd, const char* path, int flags,
                     mode_t mode) {
  const Route route(AT_FDCWD, path);
  if (route.served())
    return refuse("posix_spawn_file_actions_addopen", "not served", ENOTSUP), ENOTSUP;
  return next<"posix_spawn_file_actions_addopen", int>(actions, fd, route.path, flags, mode);
}
int fb_spawn_addchdir(posix_spawn_file_actions_t* actions, const char* path) {
  const Route route(AT_FDCWD, path);
  if (route.served())
    return refuse("posix_spawn_file_actions_addchdir", "not served", ENOTSUP), ENOTSUP;
  return next<"posix_spawn_file_actions_addchdir_np", int>(actions, route.path);
}

// libc's own would lead descriptors elsewhere from within.
int fb_daemon(int keep_folder, int keep_streams) {
  if (!active()) return next<"daemon", int>(keep_folder, keep_streams);
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child > 0) ::_exit(0);
  if (::setsid() < 0) return -1;
  if (!keep_folder) (void)!::chdir("/");
  if (keep_streams) return 0;
  const int null = ::open64("/dev/null", O_RDWR);
  if (null < 0) return -1;
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null, fd);
  if (null > 2) ::close(null);
  return 0;
}

FOREBAY_EXPORT(daemon, fb_daemon);
FOREBAY_EXPORT(execve, fb_execve);
FOREBAY_EXPORT(execv, fb_execv);
FOREBAY_EXPORT(execvp, fb_execvp);
FOREBAY_EXPORT(execvpe, fb_execvpe);
FOREBAY_EXPORT(execl, fb_execl);
FOREBAY_EXPORT(execle, fb_execle);
FOREBAY_EXPORT(execlp, fb_execlp);
FOREBAY_EXPORT(fexecve, fb_fexecve);
FOREBAY_EXPORT(execveat, fb_execveat);
FOREBAY_EXPORT(posix_spawn, fb_posix_spawn);
FOREBAY_EXPORT(posix_spawnp, fb_posix_spawnp);
FOREBAY_EXPORT(posix_spawn_file_actions_addopen, fb_spawn_addopen);
FOREBAY_EXPORT(posix_spawn_file_actions_addchdir_np, fb_spawn_addchdir);
FOREBAY_EXPORT(fork, fb_fork);
FOREBAY_EXPORT(__fork, fb_fork);
FOREBAY_EXPORT(forkpty, fb_forkpty);
FOREBAY_EXPORT(vfork, fb_vfork);
FOREBAY_EXPORT(__vfork, fb_vfork);

// ---- Ending ----

void fb__exit(int code) {
  leave();
  next<"_exit", long>(code);
}

FOREBAY_EXPORT(_exit, fb__exit);
FOREBAY_EXPORT(_Exit, fb__exit);

// ---- Libraries ----

// Copies of served libraries, which stay open: the loader knows a library by the file that it is,
// and one that is loaded twice must be the same one. A change makes it another.
struct LibraryCopy {
  uint64_t file = 0, size = 0;
  uint32_t device = 0;
  statx_timestamp modified = {}, changed = {};
  int fd = -1;

  bool is(const struct statx& st) const {
    return fd >= 0 && file == st.stx_ino && device == st.stx_dev_minor && size == st.stx_size &&
           ::memcmp(&modified, &st.stx_mtime, sizeof modified) == 0 &&
           ::memcmp(&changed, &st.stx_ctime, sizeof changed) == 0;
  }
};
static LibraryCopy g_copies[256];
static pthread_mutex_t g_copies_mutex = PTHREAD_MUTEX_INITIALIZER;

static int copy_of(const Target& library) {
  struct statx st;
  if (ask(&Served::status, library, &st) != 0) return -1;
  ::pthread_mutex_lock(&g_copies_mutex);
  int fd = -1;
  for (const LibraryCopy& one : g_copies)
    if (one.is(st)) fd = one.fd;
  if (fd < 0) {
    fd = ask(&Served::copy, library);
    for (LibraryCopy& one : g_copies) {
      if (fd < 0 || one.fd >= 0) continue;
      one = {st.stx_ino, st.stx_size, st.stx_dev_minor, st.stx_mtime, st.stx_ctime, fd};
      break;
    }
  }
  ::pthread_mutex_unlock(&g_copies_mutex);
  return fd;
}

// The name to load it by. It must outlive the call, whose frame is gone by then; and little of it
// may be thread-local, because programs that load us late have room for some hundred bytes.
__attribute__((noinline)) static const char* loadable(const char* path) {
  if (!path || !::strchr(path, '/') || inside != 0) return path;
  static thread_local char copy[64];
  static thread_local char* elsewhere = nullptr;
  const int fd = follow(AT_FDCWD, path, true, [&](const Route& route) {
    if (route.served()) return copy_of(route.target);
    if (::strcmp(route.path, path) == 0) return -1;
    ::free(elsewhere);
    elsewhere = ::strdup(route.path);
    return -2;
  });
  if (fd == -2 && elsewhere) return elsewhere;
  if (fd < 0) return path;
  ::snprintf(copy, sizeof copy, "/proc/self/fd/%d", fd);
  return copy;
}

// libc looks at who calls it (RUNPATH), so the last step must be a jump.
void* fb_dlopen(const char* path, int flags) {
  using Function = void* (*)(const char*, int);
  static std::atomic<Function> found{nullptr};
  Function function = found.load(std::memory_order_relaxed);
  if (!function) found.store(function = reinterpret_cast<Function>(find_next("dlopen")));
  path = loadable(path);
  return function(path, flags);
}

FOREBAY_EXPORT(dlopen, fb_dlopen);
}
