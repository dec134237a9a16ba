// Walks over trees, nftw(3) and ftw(3): libc's own call the kernel from within. What is called, in
// which order and with what is glibc's, except that a directory is read as a whole before any of it
// is visited, so that no stream stays open below another.
#include <dirent.h>
#include <ftw.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

// What a walk needs of the heap, given back with it.
template <class T>
struct Array {
  T* all = nullptr;
  size_t size = 0, room = 0;

  Array() = default;
  ~Array() { ::free(all); }
  Array(const Array&) = delete;
  bool reserve(size_t wanted) {
    if (wanted <= room) return true;
    const size_t more = wanted < 64 ? 64 : wanted * 2;
    auto* const grown = static_cast<T*>(::realloc(all, more * sizeof(T)));
    if (!grown) return errno = ENOMEM, false;
    all = grown;
    room = more;
    return true;
  }
  bool add(const T* some, size_t count) {
    if (!reserve(size + count)) return false;
    ::memcpy(all + size, some, count * sizeof(T));
    size += count;
    return true;
  }
};

// The names in a directory, one after the other; for FTW_CHDIR it stays open.
struct Names {
  Array<char> text;
  int fd = -1;

  ~Names() {
    const int kept = errno;
    if (fd >= 0) ::close(fd);
    errno = kept;
  }
  bool read(const char* path, bool stay) {
    DIR* const directory = ::opendir(path);
    if (!directory) return false;
    bool good = true;
    errno = 0;
    while (const dirent64* const entry = good ? ::readdir64(directory) : nullptr) {
      if (::strcmp(entry->d_name, ".") != 0 && ::strcmp(entry->d_name, "..") != 0)
        good = text.add(entry->d_name, ::strlen(entry->d_name) + 1);
      if (good) errno = 0;
    }
    good = good && errno == 0;
    if (good && stay) good = (fd = ::fcntl(::dirfd(directory), F_DUPFD_CLOEXEC, 3)) >= 0;
    const int kept = errno;
    ::closedir(directory);
    errno = kept;
    return good;
  }
};

struct Visit {
  __nftw64_func_t nftw = nullptr;  // or
  __ftw64_func_t ftw = nullptr;
};

class Walk {
 public:
  Walk(Visit visit, int flags) : visit_(visit), flags_(flags) {}
  ~Walk() { ::tdestroy(seen_, ::free); }
  Walk(const Walk&) = delete;

  int run(const char* start) {
    if (!set_start(start)) return -1;
    const char* const name = has(FTW_CHDIR) ? path_.all + at_.base : path_.all;
    struct stat64 st = {};
    int result = 0;
    if (!look(name, &st)) {
      const bool dangling =
          !has(FTW_PHYS) && errno == ENOENT && ::lstat64(name, &st) == 0 && S_ISLNK(st.st_mode);
      if (!dangling) return -1;
      result = tell(st, FTW_SLN);
    } else if (S_ISDIR(st.st_mode)) {
      device_ = st.st_dev;
      if (!has(FTW_PHYS) && !is_new(st)) return -1;
      result = folder(st, nullptr);
    } else {
      result = tell(st, S_ISLNK(st.st_mode) ? FTW_SL : FTW_F);
    }
    const bool skips = result == FTW_SKIP_SUBTREE || result == FTW_SKIP_SIBLINGS;
    return has(FTW_ACTIONRETVAL) && skips ? 0 : result;
  }

 private:
  struct Place {
    uint64_t device, file;
  };

  bool has(int flag) const { return flags_ & flag; }

  // Without slashes at its end; with FTW_CHDIR in the directory that it is in.
  bool set_start(const char* start) {
    size_t size = ::strlen(start);
    if (size == 0) return errno = ENOENT, false;
    while (size > 1 && start[size - 1] == '/') --size;
    if (!path_.add(start, size) || !end_path(size)) return false;
    size_t base = size;
    while (base > 0 && start[base - 1] != '/') --base;
    at_.base = static_cast<int>(base);
    if (!has(FTW_CHDIR) || base == 0) return true;
    if (base == 1) return ::chdir("/") == 0;
    path_.all[base - 1] = '\0';
    const bool entered = ::chdir(path_.all) == 0;
    path_.all[base - 1] = '/';
    return entered;
  }
  bool end_path(size_t size) {
    path_.size = size;
    const char end = '\0';
    return path_.add(&end, 1);
  }

  bool look(const char* name, struct stat64* to) const {
    return (has(FTW_PHYS) ? ::lstat64(name, to) : ::stat64(name, to)) == 0;
  }

  int tell(const struct stat64& st, int what) {
    // As ftw(3) knows them: F, D, DNR, NS, SL, DP, SLN.
    constexpr int kOld[] = {FTW_F, FTW_D, FTW_DNR, FTW_NS, FTW_F, FTW_D, FTW_NS};
    if (visit_.nftw) return visit_.nftw(path_.all, &st, what, &at_);
    return visit_.ftw(path_.all, &st, kOld[what]);
  }

  // Directories that links lead to again are visited once. False with errno ENOMEM: it is not
  // known.
  bool is_new(const struct stat64& st) {
    auto* const place = static_cast<Place*>(::malloc(sizeof(Place)));
    if (place) *place = {st.st_dev, st.st_ino};
    void* const found = place ? ::tsearch(place, &seen_, compare) : nullptr;
    if (!found) return ::free(place), errno = ENOMEM, false;
    if (*static_cast<Place**>(found) == place) return true;
    ::free(place);
    return errno = 0, false;
  }
  static int compare(const void* a, const void* b) { return ::memcmp(a, b, sizeof(Place)); }

  int entry(const Names& in, const char* name) {
    const size_t base = static_cast<size_t>(at_.base), size = ::strlen(name);
    path_.size = base;
    if (!path_.add(name, size + 1)) return -1;
    const char* const asked = has(FTW_CHDIR) ? name : path_.all;
    struct stat64 st = {};
    int what = FTW_F;
    if (!look(asked, &st)) {
      if (errno != EACCES && errno != ENOENT) return -1;
      const bool link = !has(FTW_PHYS) && ::lstat64(asked, &st) == 0 && S_ISLNK(st.st_mode);
      what = link ? FTW_SLN : FTW_NS;
    } else if (S_ISDIR(st.st_mode)) {
      what = FTW_D;
    } else if (S_ISLNK(st.st_mode)) {
      what = FTW_SL;
    }
    if (what != FTW_NS && has(FTW_MOUNT) && st.st_dev != device_) return 0;
    int result = 0;
    if (what != FTW_D) {
      result = tell(st, what);
    } else if (has(FTW_PHYS) || is_new(st)) {
      result = folder(st, &in);
    } else if (errno == ENOMEM) {
      return -1;
    }
    return has(FTW_ACTIONRETVAL) && result == FTW_SKIP_SUBTREE ? 0 : result;
  }

  int folder(const struct stat64& st, const Names* above) {
    const int base = at_.base;
    const size_t size = ::strlen(path_.all);
    Names names;
    if (!names.read(has(FTW_CHDIR) ? path_.all + base : path_.all, has(FTW_CHDIR)))
      return errno == EACCES ? tell(st, FTW_DNR) : -1;
    if (!has(FTW_DEPTH))
      if (const int result = tell(st, FTW_D); result != 0) return result;
    if (has(FTW_CHDIR) && ::fchdir(names.fd) != 0) return -1;
    path_.size = size;
    if (path_.all[size - 1] != '/' && !path_.add("/", 1)) return -1;
    ++at_.level;
    at_.base = static_cast<int>(path_.size);
    int result = 0;
    for (size_t i = 0; i < names.text.size && result == 0; i += ::strlen(names.text.all + i) + 1)
      result = entry(names, names.text.all + i);
    if (has(FTW_ACTIONRETVAL) && result == FTW_SKIP_SIBLINGS) result = 0;
    path_.all[at_.base - 1] = '\0';
    --at_.level;
    at_.base = base;
    if (result == 0 && has(FTW_DEPTH)) result = tell(st, FTW_DP);
    const bool goes_on =
        result == 0 || (has(FTW_ACTIONRETVAL) && result != -1 && result != FTW_STOP);
    if (above && has(FTW_CHDIR) && goes_on && ::fchdir(above->fd) != 0) return -1;
    return result;
  }

  const Visit visit_;
  const int flags_;
  Array<char> path_;
  void* seen_ = nullptr;  // Places, by tsearch(3)
  FTW at_ = {};
  dev_t device_ = 0;
};

int walk(const char* start, Visit visit, int flags) {
  constexpr int kKnown = FTW_PHYS | FTW_MOUNT | FTW_CHDIR | FTW_DEPTH | FTW_ACTIONRETVAL;
  if (flags & ~kKnown) return errno = EINVAL, -1;
  const int back = flags & FTW_CHDIR ? ::open64(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if ((flags & FTW_CHDIR) && back < 0) return -1;
  const int result = Walk(visit, flags).run(start);
  if (back < 0) return result;
  const int kept = errno;
  const bool there = ::fchdir(back) == 0;
  if (there) errno = kept;
  ::close(back);
  return there ? result : -1;
}

}  // namespace

extern "C" {

int fb_nftw(const char* path, __nftw64_func_t each, int most, int flags) {
  if (!Route(AT_FDCWD, path).served()) return next<"nftw64", int>(path, each, most, flags);
  return walk(path, {.nftw = each}, flags);
}
int fb_ftw(const char* path, __ftw64_func_t each, int most) {
  if (!Route(AT_FDCWD, path).served()) return next<"ftw64", int>(path, each, most);
  return walk(path, {.ftw = each}, 0);
}

FOREBAY_EXPORT(nftw, fb_nftw);
FOREBAY_EXPORT(nftw64, fb_nftw);
FOREBAY_EXPORT(ftw, fb_ftw);
FOREBAY_EXPORT(ftw64, fb_ftw);
}
