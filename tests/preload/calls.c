// Calls of libc that programs really make on files, one line of outcome each. Run in two folders,
// one of them served: the lines must be the same.
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <linux/fs.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

static char top[4096];

static void say(const char* format, ...) {
  char line[8192];
  va_list more;
  va_start(more, format);
  const int n = vsnprintf(line, sizeof line, format, more);
  va_end(more);
  for (int i = 0; i < n; ++i)
    if (line[i] == '\n') line[i] = '|';
  // The two folders have names of the same length.
  for (char* at; (at = strstr(line, top));) memset(at, '@', strlen(top));
  printf("%s\n", line);
  fflush(stdout);
}
#define GOT(call)                                                                         \
  do {                                                                                    \
    errno = 0;                                                                            \
    const long got_ = (long)(call);                                                       \
    say("%d %s = %ld %s", __LINE__, #call, got_, got_ < 0 ? strerrorname_np(errno) : ""); \
  } while (0)
#define SHOWN(call)                                               \
  do {                                                            \
    errno = 0;                                                    \
    const char* got_ = (call);                                    \
    say("%d %s = %s %s", __LINE__, #call, got_ ? got_ : "(null)", \
        got_ ? "" : strerrorname_np(errno));                      \
  } while (0)

static const char* content(const char* path) {
  static char text[4096];
  const int fd = open(path, O_RDONLY);
  const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  text[n < 0 ? 0 : n] = '\0';
  if (fd >= 0) close(fd);
  return n < 0 ? strerrorname_np(errno) : text;
}
static void put(const char* path, const char* text) {
  const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) say("put %s: %m", path);
  close(fd);
}

static void descriptors(void) {
  put("f", "0123456789");
  int fd = open("f", O_RDWR);
  GOT(dprintf(fd, "<%d>", 42));
  SHOWN(content("f"));
  GOT(lseek(fd, 0, SEEK_CUR));
  struct pollfd one = {fd, POLLIN | POLLOUT, 0};
  GOT(poll(&one, 1, 0));
  GOT(one.revents);
  one.events = 0;
  GOT(poll(&one, 1, 1));
  GOT(ppoll(&one, 1, &(struct timespec){0, 1000}, NULL));
  fd_set in, out;
  FD_ZERO(&in);
  FD_ZERO(&out);
  FD_SET(fd, &in);
  FD_SET(fd, &out);
  GOT(select(fd + 1, &in, &out, NULL, NULL));
  GOT(FD_ISSET(fd, &in) + FD_ISSET(fd, &out));
  GOT(pselect(fd + 1, &in, NULL, NULL, &(struct timespec){1, 0}, NULL));
  GOT(FD_ISSET(fd, &in));
  struct termios t;
  GOT(tcgetattr(fd, &t));
  GOT(tcgetpgrp(fd));
  SHOWN(ttyname(fd));
  GOT(isatty(fd));
  int n = 7;
  GOT(ioctl(fd, FIONREAD, &n));
  int other = open("g", O_CREAT | O_RDWR | O_TRUNC, 0600);
  GOT(ioctl(other, TIOCGWINSZ, &t));
  GOT(flock(fd, LOCK_EX | LOCK_NB));
  GOT(flock(fd, LOCK_UN));
  GOT(close_range(9, 5, 0));
  GOT(close_range(200, 300, 0));
  GOT(dup2(fd, fd));
  GOT(dup3(fd, fd, 0));
  GOT(dup2(-1, 5));
  GOT(dup2(fd, -1));
  GOT(fcntl(fd, F_DUPFD_CLOEXEC, 100));
  GOT(fcntl(100, F_GETFD));
  GOT(close(100));
  GOT(close(100));
  GOT(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
  GOT(fcntl(fd, F_SETFL, O_APPEND));
  GOT(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
  GOT(pwrite(fd, "end", 3, 0));
  SHOWN(content("f"));
  GOT(readahead(fd, 0, 100));
  GOT(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
  GOT(posix_fallocate(other, 0, 100));
  GOT(sync_file_range(fd, 0, 0, 0));
  GOT(syncfs(fd));
  GOT(read(fd, NULL, 0));
  GOT(write(fd, "", 0));
  GOT(pread(fd, &n, 4, -1));
  GOT(lseek(fd, 0, 77));
  GOT(lseek(fd, 2, SEEK_DATA));
  GOT(lseek(fd, 2, SEEK_HOLE));
  GOT(lseek(fd, 1 << 20, SEEK_DATA));
  char a[4], b[100];
  struct iovec two[2] = {{a, 4}, {b, 100}};
  GOT(preadv2(fd, two, 2, 1, 0));
  GOT(lseek(fd, 3, SEEK_SET));
  GOT(preadv2(fd, two, 2, -1, 0));
  GOT(lseek(fd, 0, SEEK_CUR));
  GOT(pwritev2(other, two, 1, 0, RWF_DSYNC));
  GOT(pwritev2(other, two, 1, 0, RWF_APPEND));
  GOT(lseek(other, 0, SEEK_END));
  GOT(readv(fd, two, -1));
  GOT(readv(fd, two, 1025));
  GOT(ftruncate(fd, -1));
  GOT(lockf(fd, F_TEST, 0));
  GOT(lockf(fd, F_LOCK, 10));
  GOT(lockf(fd, F_ULOCK, 0));
  struct flock lock = {F_WRLCK, SEEK_SET, 0, 0, 0};
  GOT(fcntl(fd, F_SETLK, &lock));
  GOT(fcntl(fd, F_GETLK, &lock));
  GOT(lock.l_type == F_UNLCK);
  lock = (struct flock){F_WRLCK, SEEK_SET, 0, 0, 0};
  GOT(fcntl(fd, F_OFD_SETLK, &lock));
  close(fd);
  close(other);
}

static void stdio(void) {
  put("s", "one\ntwo\nthree\n");
  char line[100];
  FILE* f = fopen("s", "r");
  SHOWN(fgets(line, sizeof line, f));
  GOT(ftell(f));
  GOT(fileno(f) > 2);
  GOT(fseek(f, -6, SEEK_END));
  SHOWN(fgets(line, sizeof line, f));
  GOT(fgetc(f));
  GOT(feof(f) != 0);
  GOT(fclose(f));
  f = fopen("s", "a");
  GOT(ftell(f));
  GOT(fputs("four\n", f));
  GOT(ftell(f));
  GOT(fclose(f));
  f = fopen("s", "a+");
  GOT(ftell(f));
  SHOWN(fgets(line, sizeof line, f));
  GOT(fputs("five\n", f));
  GOT(fflush(f));
  GOT(fseek(f, 0, SEEK_SET));
  SHOWN(fgets(line, sizeof line, f));
  GOT(fclose(f));
  SHOWN(content("s"));
  f = fopen("s", "r+");
  GOT(fseek(f, 4, SEEK_SET));
  GOT(fputs("TWO", f));
  GOT(fgetc(f));
  rewind(f);
  SHOWN(fgets(line, sizeof line, f));
  SHOWN(fgets(line, sizeof line, f));
  GOT(ungetc('x', f));
  GOT(fgetc(f));
  GOT(fclose(f));
  GOT(fopen("s", "wx") != NULL);
  GOT(fopen("missing", "r") != NULL);
  GOT(fopen("s", "?") != NULL);
  int fd = open("s", O_RDONLY);
  GOT(fdopen(fd, "w") != NULL);
  f = fdopen(fd, "r");
  SHOWN(fgets(line, sizeof line, f));
  GOT(fclose(f));
  GOT(fcntl(fd, F_GETFD));
  fd = open("s", O_RDWR);
  f = fdopen(fd, "a");
  GOT(fcntl(fd, F_GETFL) & O_APPEND);
  GOT(fprintf(f, "six %d\n", 6));
  GOT(fclose(f));
  SHOWN(content("s"));
  f = fopen("s", "re");
  GOT(fcntl(fileno(f), F_GETFD));
  f = freopen("t", "w", f);
  GOT(f != NULL);
  if (f) GOT(fputs("reopened\n", f));
  if (f) GOT(fclose(f));
  SHOWN(content("t"));
  f = fopen("s", "r");
  FILE* g = freopen(NULL, "r", f);
  GOT(g != NULL);
  if (g) SHOWN(fgets(line, sizeof line, g));
  if (g) GOT(fclose(g));
  f = fopen("s", "r");
  wchar_t wide[100];
  GOT(fgetws(wide, 100, f) != NULL);
  GOT(wide[0]);
  GOT(fgetwc(f));
  GOT(fwide(f, 0));
  GOT(fclose(f));
  f = fopen("w", "w");
  GOT(fwprintf(f, L"wide %ls %d\n", L"text", 5));
  GOT(fputwc(L'x', f));
  GOT(fclose(f));
  SHOWN(content("w"));
  setlocale(LC_CTYPE, "C.UTF-8");
  f = fopen("w", "w+");
  for (int i = 0; i < 200; ++i) fwprintf(f, L"%d w\u00f6rter;\t%x\n", i, i * 31);
  rewind(f);
  long sum = 0;
  int first, second, some = 0;
  while (fwscanf(f, L"%d %99l[^;]; %x", &first, wide, &second) == 3 && ++some)
    sum += first + second + (long)wcslen(wide) + wide[1] + ftell(f);
  GOT(some);
  GOT(sum);
  GOT(feof(f));
  GOT(fwscanf(f, L"%d", &first));
  GOT(fseek(f, 0, SEEK_SET));
  GOT(feof(f));
  GOT(fwscanf(f, L"%d %d", &first, &second));
  GOT(ftell(f));
  GOT(fgetwc(f));
  GOT(ungetwc(L'7', f));
  GOT(fwscanf(f, L"%1d%lc%n", &first, wide, &second));
  GOT(first * 1000 + second);
  GOT(wide[0]);
  wchar_t* made = NULL;
  GOT(fwscanf(f, L"%9999ml[^~]", &made));
  GOT(made ? (long)wcslen(made) : -1);
  free(made);
  GOT(fgetwc(f));
  GOT(fclose(f));
  f = fopen("w", "w");
  GOT(fwscanf(f, L"%d", &first));
  GOT(ferror(f) != 0);
  GOT(fclose(f));
  f = fopen("w", "w");
  fputs("12 \xff 13", f);
  GOT(fclose(f));
  GOT(freopen("w", "r", stdin) != NULL);
  GOT(wscanf(L"%d", &first));
  GOT(wscanf(L"%ls", wide));
  GOT(ferror(stdin) != 0);
  setlocale(LC_CTYPE, "C");
  f = fopen("s", "r");
  char* grown = NULL;
  size_t room = 0;
  GOT(getline(&grown, &room, f));
  setvbuf(f, NULL, _IONBF, 0);
  GOT(getdelim(&grown, &room, 'h', f));
  GOT(fread(line, 3, 2, f));
  fpos_t at;
  GOT(fgetpos(f, &at));
  GOT(fgetc(f));
  GOT(fsetpos(f, &at));
  GOT(fgetc(f));
  GOT(fclose(f));
  f = fopen("s", "r");
  fgetc(f);
  fflush(f);
  GOT(lseek(fileno(f), 0, SEEK_CUR));
  GOT(fclose(f));
  char name[] = "tmp.XXXXXX";
  SHOWN(strlen(mktemp(name)) == 10 ? "named" : "?");
  char name2[] = "tmpXXXXXX.c";
  GOT(mkstemps(name2, 2) > 2);
  GOT(strlen(content(name2)));
  char name3[] = "dirXXXXXX";
  SHOWN(mkdtemp(name3) ? "made" : NULL);
  GOT(rmdir(name3));
  GOT(unlink(name2));
  f = fopen("big", "w+");
  for (int i = 0; i < 20000; ++i) fprintf(f, "%d\n", i);
  GOT(fseek(f, 5000, SEEK_SET));
  GOT(fgetc(f));
  GOT(fclose(f));
  struct stat st;
  GOT(stat("big", &st));
  GOT(st.st_size);
}

static int no_dots(const struct dirent* entry) {
  return entry->d_name[0] != '.';
}

static void folders(void) {
  mkdir("d", 0755);
  mkdir("d/e", 0750);
  put("d/a", "a");
  put("d/b", "bb");
  put("d/e/c", "ccc");
  struct dirent** all;
  int n = scandir("d", &all, no_dots, alphasort);
  for (int i = 0; i < n; ++i) say("scandir %s %d", all[i]->d_name, all[i]->d_type);
  const int top_fd = open(".", O_RDONLY | O_DIRECTORY);
  n = scandirat(top_fd, "d", &all, no_dots, alphasort);
  for (int i = 0; i < n; ++i) say("scandirat %s %d", all[i]->d_name, all[i]->d_type);
  GOT(n);
  DIR* dir = opendir("d");
  GOT(telldir(dir));
  GOT(readdir(dir) != NULL);
  const long where = telldir(dir);
  struct dirent* entry = readdir(dir);
  char second[256];
  strcpy(second, entry->d_name);
  readdir(dir);
  seekdir(dir, where);
  GOT(telldir(dir) == where);
  GOT(strcmp(readdir(dir)->d_name, second));
  put("d/new", "");
  rewinddir(dir);
  int count = 0;
  while (readdir(dir)) ++count;
  GOT(count);
  GOT(errno);
  GOT(unlink("d/new"));
  GOT(fcntl(dirfd(dir), F_GETFD));
  GOT(closedir(dir));
  SHOWN(opendir("d/a") ? "" : NULL);
  SHOWN(opendir("nothing") ? "" : NULL);
  int fd = open("d/a", O_RDONLY);
  SHOWN(fdopendir(fd) ? "" : NULL);
  close(fd);
  fd = open("d", O_RDONLY);
  static char buffer[4096];
  GOT(getdents64(fd, buffer, sizeof buffer) > 0);
  GOT(syscall(SYS_getdents64, fd, buffer, sizeof buffer));
  close(fd);
  glob_t g = {0};
  GOT(glob("d/*", GLOB_MARK, NULL, &g));
  for (size_t i = 0; i < g.gl_pathc; ++i) say("glob %s", g.gl_pathv[i]);
  globfree(&g);
  char pattern[5000];
  snprintf(pattern, sizeof pattern, "%s/d/?", top);
  GOT(glob(pattern, 0, NULL, &g));
  for (size_t i = 0; i < g.gl_pathc; ++i) say("glob %s", g.gl_pathv[i]);
  char path[4096];
  GOT(symlink("d/e", "le"));
  SHOWN(realpath("le/../a", path));
  SHOWN(realpath("le/c", NULL));
  SHOWN(realpath("nothing/c", path));
  SHOWN(canonicalize_file_name("./d/./e/.."));
  GOT(chdir("le"));
  SHOWN(getcwd(path, sizeof path));
  SHOWN(content("c"));
  SHOWN(content("../a"));
  GOT(chdir(".."));
  SHOWN(getcwd(NULL, 0));
  SHOWN(get_current_dir_name());
  GOT(fchdir(top_fd));
  SHOWN(getcwd(path, sizeof path));
  SHOWN(getcwd(path, 3));
  GOT(readlink("/proc/self/cwd", path, sizeof path) > 0);
  ssize_t size = readlink("/proc/self/cwd", path, sizeof path);
  path[size] = '\0';
  say("cwd %s", path);
  fd = open("d/a", O_RDONLY);
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  size = readlink(name, path, sizeof path);
  path[size] = '\0';
  say("fd %s", path);
  size = readlinkat(AT_FDCWD, name, path, sizeof path);
  path[size] = '\0';
  say("fd %s", path);
  SHOWN(content(name));
  snprintf(name, sizeof name, "/dev/fd/%d", fd);
  SHOWN(content(name));
  GOT(chdir("/"));
  char relative[5000];
  snprintf(relative, sizeof relative, "%s/d/a", top + 1);
  SHOWN(content(relative));
  GOT(fchdir(top_fd));
  close(fd);
  close(top_fd);
}

// From the root down, folder by folder, as programs do that trust no link.
static int walked(int flags) {
  char left[4096];
  strcpy(left, top);
  int fd = open("/", flags | O_DIRECTORY);
  for (char* name = strtok(left, "/"); name && fd >= 0; name = strtok(NULL, "/")) {
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode)) return -1;
    const int below = openat(fd, name, flags | O_DIRECTORY | O_NOFOLLOW);
    close(fd);
    fd = below;
  }
  return fd;
}

// Links with whole paths in them: into the folder itself, and out of it.
static void links(void) {
  char text[5000];
  mkdir("away", 0755);
  put("away/f", "inside");
  snprintf(text, sizeof text, "%s/away", top);
  GOT(symlink(text, "to"));
  GOT(symlink("/etc", "out"));
  GOT(symlink("/etc/passwd", "file"));
  GOT(symlink("/nothing/here", "dangling"));
  GOT(symlink("/bin/sh", "sh"));
  SHOWN(content("to/f"));
  put("to/g", "made");
  SHOWN(content("away/g"));
  GOT(rename("to/g", "to/h"));
  GOT(unlink("to/h"));
  GOT(mkdir("to/d", 0755));
  GOT(rmdir("away/d"));
  GOT(strcmp(content("out/passwd"), content("/etc/passwd")));
  GOT(strcmp(content("file"), content("/etc/passwd")));
  SHOWN(content("dangling"));
  GOT(open("dangling", O_CREAT | O_EXCL | O_RDWR, 0600));
  GOT(open("file", O_RDONLY | O_NOFOLLOW));
  struct stat here, there;
  GOT(stat("file", &here));
  GOT(stat("/etc/passwd", &there));
  GOT(here.st_ino == there.st_ino);
  GOT(lstat("file", &here));
  GOT(S_ISLNK(here.st_mode));
  GOT(lstat("out/passwd", &here));
  GOT(here.st_ino == there.st_ino);
  GOT(stat("out/missing", &here));
  GOT(access("out/passwd", R_OK));
  GOT(access("dangling", F_OK));
  SHOWN(realpath("out/passwd", NULL));
  SHOWN(realpath("to/f", NULL));
  DIR* const directory = opendir("out");
  GOT(directory != NULL);
  if (directory) closedir(directory);
  GOT(chdir("out"));
  SHOWN(getcwd(text, sizeof text));
  GOT(chdir(top));
  GOT(chdir("to"));
  SHOWN(getcwd(text, sizeof text));
  GOT(chdir(".."));
  SHOWN(getcwd(text, sizeof text));
  GOT(system("./sh -c 'exit 5'") / 256);
  char* const words[] = {"sh", "-c", "exit 4", NULL};
  pid_t pid = 0;
  int status = 0;
  GOT(posix_spawn(&pid, "./sh", NULL, NULL, words, environ));
  waitpid(pid, &status, 0);
  GOT(WEXITSTATUS(status));
}

static void names(void) {
  put("walked", "found");
  for (int i = 0; i < 2; ++i) {
    const int fd = walked(i ? O_RDONLY : O_PATH);
    GOT(fd >= 0);
    const int file = openat(fd, "walked", O_RDONLY);
    GOT(lseek(file, 0, SEEK_END));
    close(file);
    GOT(faccessat(fd, "../../nothing", F_OK, 0));
    close(fd);
  }
  put("n", "text");
  struct stat st;
  struct statx stx;
  const int here = open(".", O_RDONLY | O_DIRECTORY);
  const int way = open(".", O_PATH);
  GOT(fstatat(here, "n", &st, 0));
  GOT(fstatat(way, "n", &st, 0));
  GOT(statx(here, "n", AT_SYMLINK_NOFOLLOW, STATX_ALL, &stx));
  GOT(stx.stx_size);
  GOT(fstat(way, &st));
  GOT(fstatat(here, "", &st, AT_EMPTY_PATH));
  GOT(fstatat(here, "", &st, 0));
  GOT(stat("", &st));
  GOT(stat("n/", &st));
  GOT(stat("n/x", &st));
  GOT(access("n", R_OK | W_OK));
  GOT(access("n", 99));
  GOT(access("missing", F_OK));
  GOT(faccessat(here, "n", F_OK, AT_EACCESS));
  GOT(euidaccess("n", R_OK));
  GOT(link("n", "m"));
  GOT(linkat(here, "n", here, "m2", 0));
  GOT(link("n", "m"));
  GOT(stat("n", &st));
  GOT(st.st_nlink);
  GOT(renameat2(here, "m", here, "m2", RENAME_NOREPLACE));
  GOT(rename("m", "m2"));
  GOT(renameat(here, "m2", here, "m3"));
  GOT(rename("missing", "x"));
  GOT(mkdir("dir", 0777));
  GOT(mkdir("dir", 0777));
  GOT(rename("n", "dir"));
  GOT(rename("dir", "n"));
  GOT(rename("dir", "dir/in"));
  GOT(symlinkat("n", here, "l"));
  GOT(symlink("n", "l"));
  char text[100];
  GOT(readlink("l", text, 100));
  GOT(readlinkat(here, "l", text, 100));
  GOT(readlink("n", text, 100));
  GOT(readlink("l", text, 0));
  GOT(open("l", O_RDONLY | O_NOFOLLOW));
  GOT(lchmod("l", 0600));
  GOT(fchmodat(here, "n", 0640, 0));
  GOT(fchmodat(here, "l", 0640, AT_SYMLINK_NOFOLLOW));
  GOT(stat("l", &st));
  GOT(st.st_mode);
  GOT(lchown("l", getuid(), getgid()));
  const struct timespec times[2] = {{1000, 5}, {2000, 7}};
  GOT(utimensat(here, "n", times, 0));
  GOT(stat("n", &st));
  GOT(st.st_mtim.tv_sec * 10 + st.st_mtim.tv_nsec);
  const struct timeval tv[2] = {{3, 4}, {5, 6}};
  GOT(utimes("n", tv));
  GOT(lutimes("l", tv));
  GOT(lstat("l", &st));
  GOT(st.st_mtim.tv_sec);
  int fd = open("n", O_RDWR);
  GOT(futimens(fd, times));
  GOT(futimes(fd, tv));
  GOT(fstat(fd, &st));
  GOT(st.st_mtim.tv_sec);
  GOT(fchmod(fd, 0600));
  GOT(fchown(fd, -1, -1));
  GOT(setxattr("n", "user.x", "value", 5, 0));
  GOT(fgetxattr(fd, "user.x", text, 100));
  GOT(getxattr("n", "user.x", text, 2));
  GOT(getxattr("n", "user.none", text, 2));
  GOT(lgetxattr("l", "user.x", text, 2));
  GOT(listxattr("n", text, 100));
  GOT(removexattr("n", "user.x"));
  struct statvfs vfs;
  struct statfs fs;
  GOT(statvfs("n", &vfs));
  GOT(fstatvfs(fd, &vfs));
  GOT(statfs(".", &fs));
  GOT(fstatfs(fd, &fs));
  GOT(pathconf(".", _PC_NAME_MAX));
  GOT(fpathconf(fd, _PC_PATH_MAX));
  GOT(truncate("n", 2));
  SHOWN(content("n"));
  GOT(truncate("dir", 2));
  GOT(unlink("dir"));
  GOT(rmdir("n"));
  GOT(remove("dir"));
  GOT(unlinkat(here, "m3", 0));
  GOT(unlinkat(here, "m3", AT_REMOVEDIR));
  GOT(open("n", O_RDONLY | O_DIRECTORY));
  GOT(open(".", O_WRONLY));
  GOT(open("n", O_CREAT | O_EXCL | O_RDWR, 0600));
  GOT(open("n/", O_CREAT | O_RDWR, 0600));
  GOT(openat(here, "nope", O_RDONLY));
  GOT(openat(-5, "n", O_RDONLY));
  GOT(openat(fd, "n", O_RDONLY));
  GOT(creat("", 0600));
  GOT(unlink("n"));
  GOT(fstat(fd, &st));
  GOT(st.st_nlink);
  GOT(pread(fd, text, 10, 0));
  GOT(pwrite(fd, "more", 4, 2));
  GOT(pread(fd, text, 10, 0));
  close(fd);
  close(here);
  close(way);
}

static void* mapped(int fd, int protection, int flags) {
  void* const at = mmap(NULL, 8192, protection, flags, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}
static void whole(void) {
  put("map", "mapped text");
  int fd = open("map", O_RDWR);
  char* at = mapped(fd, PROT_READ, MAP_SHARED);
  SHOWN(at);
  GOT(msync(at, 8192, MS_SYNC));
  GOT(munmap(at, 8192));
  at = mapped(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  at[0] = 'M';
  SHOWN(at);
  SHOWN(content("map"));
  GOT(munmap(at, 8192));
  int to = open("copy", O_CREAT | O_RDWR | O_TRUNC, 0600);
  off_t from = 2;
  GOT(sendfile(to, fd, &from, 100));
  GOT(from);
  GOT(copy_file_range(fd, NULL, to, NULL, 100, 0));
  SHOWN(content("copy"));
  int kernel = memfd_create("x", 0);
  GOT(copy_file_range(fd, &from, to, NULL, 100, 1));
  lseek(fd, 0, SEEK_SET);
  GOT(sendfile(kernel, fd, NULL, 100));
  close(kernel);
  int two[2];
  GOT(pipe(two));
  lseek(fd, 0, SEEK_SET);
  GOT(sendfile(two[1], fd, NULL, 5));
  char text[100] = "";
  GOT(read(two[0], text, 100));
  int sockets[2];
  GOT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  char control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec byte = {"x", 1};
  struct msghdr message = {NULL, 0, &byte, 1, control, sizeof control, 0};
  struct cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(part), &fd, sizeof fd);
  GOT(sendmsg(sockets[0], &message, 0));
  byte.iov_base = text;
  GOT(recvmsg(sockets[1], &message, 0));
  int passed = -1;
  memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
  GOT(passed != fd);
  GOT(pread(passed, text, 6, 0));
  lseek(fd, 3, SEEK_SET);
  GOT(lseek(passed, 0, SEEK_CUR));
  close(passed);
  close(sockets[0]);
  close(sockets[1]);
  GOT(ioctl(to, FICLONE, fd) < 0);
  close(fd);
  close(to);
}

static int wait_code(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
static int spawned(const char* path, int by_path, char* const* words) {
  pid_t pid = 0;
  const int failed = by_path ? posix_spawnp(&pid, path, NULL, NULL, words, environ)
                             : posix_spawn(&pid, path, NULL, NULL, words, environ);
  return failed ? -failed : wait_code(pid);
}
static void processes(void) {
  put("script", "#!/bin/sh -e\necho script $0 $1 > script.out; exit 3\n");
  chmod("script", 0755);
  put("plain", "echo no interpreter > plain.out\n");
  chmod("plain", 0755);
  char* const words[] = {"script", "word", NULL};
  GOT(spawned("./script", 0, words));
  SHOWN(content("script.out"));
  GOT(spawned("./script", 1, words));
  setenv("PATH", top, 1);
  unlink("script.out");
  GOT(spawned("script", 1, words));
  SHOWN(content("script.out"));
  unlink("script.out");
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    execvp("script", words);
    _exit(99);
  }
  GOT(wait_code(pid));
  SHOWN(content("script.out"));
  pid = fork();
  if (pid == 0) {
    execlp("plain", "plain", NULL);
    _exit(99);
  }
  GOT(wait_code(pid));
  SHOWN(content("plain.out"));
  pid = vfork();
  if (pid == 0) {
    execl("./nothing", "nothing", NULL);
    _exit(77);
  }
  GOT(wait_code(pid));
  setenv("PATH", "/usr/bin:/bin", 1);
  GOT(system("cp /bin/echo ./echo && ./echo from a copy > echo.out"));
  SHOWN(content("echo.out"));
  char* const echo[] = {"echo", "fexecve", NULL};
  int fd = open("echo", O_RDONLY | O_CLOEXEC);
  fflush(stdout);
  pid = fork();
  if (pid == 0) {
    const int out = open("echo.out", O_WRONLY | O_TRUNC);
    dup2(out, 1);
    fexecve(fd, echo, environ);
    _exit(98);
  }
  GOT(wait_code(pid));
  SHOWN(content("echo.out"));
  pid = fork();
  if (pid == 0) {
    const int out = open("echo.out", O_WRONLY | O_TRUNC);
    dup2(out, 1);
    execveat(AT_FDCWD, "echo", echo, environ, 0);
    _exit(98);
  }
  GOT(wait_code(pid));
  SHOWN(content("echo.out"));
  chmod("echo", 0644);
  GOT(spawned("./echo", 0, echo));
  GOT(spawned("./nothing", 0, echo));
  FILE* pipe = popen("cat > popen.out", "w");
  fputs("piped", pipe);
  GOT(pclose(pipe));
  SHOWN(content("popen.out"));
  close(fd);
}

// The same library twice is the same one.
static void libraries(void) {
  put("lib.c", "int count; int next(void) { return ++count; }\n");
  GOT(system("cc -shared -fPIC -o lib.so lib.c"));
  char path[5000];
  snprintf(path, sizeof path, "%s/lib.so", top);
  void* const one = dlopen("./lib.so", RTLD_NOW);
  void* const two = dlopen(path, RTLD_NOW);
  GOT(one != NULL && one == two);
  GOT(dlopen("./missing.so", RTLD_NOW) != NULL);
  if (!one || !two) return;
  GOT(((int (*)(void))dlsym(one, "next"))());
  GOT(((int (*)(void))dlsym(two, "next"))());
  GOT(dlclose(one));
  GOT(dlclose(two));
}

static void* read_for_good(void* fd) {
  char byte;
  while (pread(*(int*)fd, &byte, 1, 0) == 1) {
  }
  return NULL;
}
static void cancelled(void) {
  put("cancel", "x");
  int fd = open("cancel", O_RDWR);
  for (int i = 0; i < 5; ++i) {
    pthread_t thread;
    void* result = NULL;
    GOT(pthread_create(&thread, NULL, read_for_good, &fd));
    usleep(20000);
    GOT(pthread_cancel(thread));
    GOT(pthread_join(thread, &result));
    GOT(result == PTHREAD_CANCELED);
  }
  SHOWN(content("cancel"));
  close(fd);
}

// A thread with the least of stacks uses files of the kernel's.
static void* with_little(void* text) {
  struct stat st;
  const int fd = open("/etc/hostname", O_RDONLY);
  *(long*)text = fd >= 0 && fstat(fd, &st) == 0 && stat("/etc/passwd", &st) == 0 &&
                 access("/etc", R_OK) == 0 && openat(fd, "nothing", O_RDONLY) < 0 &&
                 unlink("/nothing/here") < 0 && close(fd) == 0;
  return NULL;
}
static void little_stack(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  long result = 0;
  pthread_attr_init(&attributes);
  GOT(pthread_attr_setstacksize(&attributes, 16384));
  GOT(pthread_create(&thread, &attributes, with_little, &result));
  GOT(pthread_join(thread, NULL));
  GOT(result);
}

static int stop_at, answer;

static int visited(const char* path, const struct stat* st, int what, struct FTW* at) {
  char here[4096];
  say("%s %s level %d what %d size %ld %s", path, path + at->base, at->level, what,
      what == FTW_NS || what == FTW_SLN || S_ISDIR(st->st_mode) ? 0L : (long)st->st_size,
      getcwd(here, sizeof here));
  errno = 0;  // calls that succeed may change it
  return stop_at-- == 0 ? answer : 0;
}
static int seen(const char* path, const struct stat* st, int what) {
  say("%s what %d", path, what);
  return strstr(path, "deep") ? 7 : 0;
}
static int removed(const char* path, const struct stat* st, int what, struct FTW* at) {
  return remove(path);
}

static int by_name(const FTSENT** a, const FTSENT** b) { return strcmp((*a)->fts_name, (*b)->fts_name); }
static int backwards(const FTSENT** a, const FTSENT** b) { return -by_name(a, b); }

// Instructions are given by what names have in them; with `children`, those are listed as well.
static void walk(char* const* paths, int options, int (*order)(const FTSENT**, const FTSENT**),
                 int children) {
  say("fts %x %s %d", options, paths[0], children);
  errno = 0;
  FTS* const all = fts_open(paths, options, order);
  GOT(all != NULL ? 0 : -1);
  if (!all) return;
  for (FTSENT* one = fts_children(all, 0); one && children; one = one->fts_link)
    say("root %s %d", one->fts_name, one->fts_info);
  for (FTSENT* one; (one = fts_read(all));) {
    say("info %d level %d %s %s lengths %d %d errno %d cycle %s size %ld above %s number %ld", one->fts_info,
        one->fts_level, one->fts_path, one->fts_name, one->fts_namelen, one->fts_pathlen,
        one->fts_errno, one->fts_info == FTS_DC ? one->fts_cycle->fts_name : "",
        (options & FTS_NOSTAT) || one->fts_info != FTS_F ? 0L : (long)one->fts_statp->st_size,
        one->fts_parent->fts_name, one->fts_number++);
    struct stat st;
    if (one->fts_info == FTS_F && stat(one->fts_accpath, &st) != 0) say("not there: %s", one->fts_accpath);
    if (options & FTS_NOCHDIR) say("by %s", one->fts_accpath);
    if (one->fts_info == FTS_D && !children && strstr(one->fts_name, "er")) fts_set(all, one, FTS_SKIP);
    if (one->fts_info == FTS_SL && strstr(one->fts_name, "same")) fts_set(all, one, FTS_FOLLOW);
    if (one->fts_info == FTS_F && strstr(one->fts_name, "f2") && one->fts_number < 3)
      fts_set(all, one, FTS_AGAIN);
    if (!children || one->fts_info != FTS_D) continue;
    for (FTSENT* in = fts_children(all, children == 2 ? FTS_NAMEONLY : 0); in; in = in->fts_link) {
      say("child %s %d", in->fts_name, in->fts_info);
      if (strstr(in->fts_name, "z1")) fts_set(all, in, FTS_SKIP);
      // Where the working directory stays, libc would look at what it came from.
      if (strstr(in->fts_name, "to-file") && !(options & (FTS_NOCHDIR | FTS_LOGICAL)))
        fts_set(all, in, FTS_FOLLOW);
    }
  }
  GOT(errno);
  GOT(fts_set(all, NULL, 99));
  GOT(fts_close(all));
}

static void walks(const char* whole) {
  char* const paths[][4] = {{"t", NULL}, {"t/", NULL}, {(char*)whole, NULL}, {"t/deep/f1", "t/empty", "t/link", NULL},
                            {"t/deep/dangling", "nothing", ".", NULL}, {"", NULL}};
  const int options[] = {FTS_PHYSICAL, FTS_LOGICAL, FTS_PHYSICAL | FTS_COMFOLLOW, FTS_PHYSICAL | FTS_SEEDOT,
                         FTS_PHYSICAL | FTS_NOSTAT, FTS_PHYSICAL | FTS_XDEV, FTS_LOGICAL | FTS_NOSTAT, 1 << 15};
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < (i < 2 ? 6 : 2); ++k)
        walk(paths[i], options[j] | (k & 1 ? FTS_NOCHDIR : 0), k & 1 ? by_name : backwards, k / 2);
}

static void trees(void) {
  char name[100];
  mkdir("t", 0755);
  mkdir("t/deep", 0755);
  mkdir("t/deep/er", 0755);
  mkdir("t/empty", 0755);
  put("t/deep/er/file", "text");
  for (int i = 0; i < 5; ++i) {
    sprintf(name, "t/deep/f%d", i);
    put(name, "12345");
    sprintf(name, "t/z%d", i);
    put(name, "1");
  }
  symlink("nothing", "t/deep/dangling");
  symlink("..", "t/deep/up");
  symlink("er", "t/deep/same");
  symlink("f1", "t/deep/to-file");
  symlink("deep", "t/link");
  char whole[4200];
  sprintf(whole, "%s/t//", top);
  walks(whole);
  const char* const starts[] = {"t", "t/", "./t", whole, "t/deep/f1", "t/deep/dangling", "t/deep/same",
                                "t/deep/same/", "nothing", ""};
  const int flags[] = {0, FTW_PHYS, FTW_DEPTH, FTW_PHYS | FTW_DEPTH, FTW_CHDIR, FTW_CHDIR | FTW_PHYS,
                       FTW_CHDIR | FTW_DEPTH, FTW_MOUNT, FTW_PHYS | FTW_MOUNT | FTW_ACTIONRETVAL};
  for (int i = 0; i < 10; ++i)
    for (int j = 0; j < 9; ++j) {
      stop_at = -1;
      say("%s with %d", starts[i], flags[j]);
      GOT(nftw(starts[i], visited, 3, flags[j]));
    }
  const int answers[] = {FTW_STOP, FTW_SKIP_SUBTREE, FTW_SKIP_SIBLINGS, -1, 77};
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 16; j += 3)
      for (int k = 0; k < 4; ++k) {
        answer = answers[i];
        stop_at = j;
        GOT(nftw("t", visited, 20, FTW_PHYS | (k & 1 ? FTW_CHDIR : 0) |
                                       (k & 2 ? FTW_DEPTH : 0) | (j & 1 ? FTW_ACTIONRETVAL : 0)));
        SHOWN(getcwd(name, sizeof name) ? "" : "lost");
      }
  GOT(nftw("t", visited, 1, 1 << 20));
  GOT(ftw("t", seen, 5));
  GOT(ftw("t/empty", seen, 0));
  GOT(nftw("t", removed, 5, FTW_PHYS | FTW_DEPTH));
  GOT(access("t", F_OK));
}

static void rest(void) {
  little_stack();
  libraries();
  cancelled();
  put("aio", "0123456789");
  int fd = open("aio", O_RDWR);
  char text[20] = "";
  struct aiocb one = {.aio_fildes = fd, .aio_buf = text, .aio_nbytes = 5, .aio_offset = 2};
  const struct aiocb* list[] = {&one};
  GOT(aio_read(&one));
  GOT(aio_suspend(list, 1, NULL));
  GOT(aio_error(&one));
  GOT(aio_return(&one));
  SHOWN(text);
  close(fd);
  GOT(syscall(SYS_openat, AT_FDCWD, "aio", O_RDONLY) >= 0);
  struct stat st;
  GOT(syscall(SYS_newfstatat, AT_FDCWD, "aio", &st, 0));
}

int main(int count, char** words) {
  if (count < 2 || chdir(words[1]) != 0 || !realpath(words[1], top)) return 1;
  umask(022);
  const char* only = count > 2 ? words[2] : "dsflnwprt";
  if (strchr(only, 'd')) descriptors();
  if (strchr(only, 's')) stdio();
  if (strchr(only, 'f')) folders();
  if (strchr(only, 'l')) links();
  if (strchr(only, 'n')) names();
  if (strchr(only, 'w')) whole();
  if (strchr(only, 'p')) processes();
  if (strchr(only, 'r')) rest();
  if (strchr(only, 't')) trees();
  say("end");
  return 0;
}
