// Walks over trees, fts(3). As glibc's, except that it never changes the working directory: fts(3)
// calls that an optimization which nobody may rely on, and fts_accpath leads there either way.
#include <dirent.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

constexpr int kOurs = 1 << 30;               // in FTS::fts_options
constexpr size_t kLongest = UINT16_MAX - 1;  // of a path: as FTSENT has it

using Compare = int (*)(const FTSENT**, const FTSENT**);
enum class For { reading, children, names };

bool has(const FTS* walk, int option) {
  return walk->fts_options & option;
}
bool is_dot(const char* name) {
  return ::strcmp(name, ".") == 0 || ::strcmp(name, "..") == 0;
}

FTSENT* make(const FTS* walk, const char* name) {
  const size_t length = ::strlen(name);
  if (length > kLongest) return errno = ENAMETOOLONG, nullptr;
  const size_t named = (offsetof(FTSENT, fts_name) + length + 16) / 16 * 16;
  const size_t status = has(walk, FTS_NOSTAT) ? 0 : sizeof(struct stat);
  auto* const entry = static_cast<FTSENT*>(::calloc(1, named + status));
  if (!entry) return nullptr;
  ::memcpy(entry->fts_name, name, length + 1);
  entry->fts_namelen = static_cast<unsigned short>(length);
  entry->fts_path = walk->fts_path;
  entry->fts_instr = FTS_NOINSTR;
  if (status)
    entry->fts_statp = reinterpret_cast<struct stat*>(reinterpret_cast<char*>(entry) + named);
  return entry;
}

void drop_all(FTSENT* entry) {
  while (entry) {
    FTSENT* const next = entry->fts_link;
    ::free(entry);
    entry = next;
  }
}

// Looks at what fts_accpath names: FTS_F and the like.
unsigned short look(const FTS* walk, FTSENT* entry, bool follow) {
  struct stat own = {};
  struct stat* const st = entry->fts_statp ? entry->fts_statp : &own;
  const bool through = follow || has(walk, FTS_LOGICAL);
  if ((through ? ::stat(entry->fts_accpath, st) : ::lstat(entry->fts_accpath, st)) != 0) {
    const int code = errno;
    if (through && ::lstat(entry->fts_accpath, st) == 0) return errno = 0, FTS_SLNONE;
    entry->fts_errno = code;
    ::memset(st, 0, sizeof *st);
    return FTS_NS;
  }
  if (S_ISLNK(st->st_mode)) return FTS_SL;
  if (S_ISREG(st->st_mode)) return FTS_F;
  if (!S_ISDIR(st->st_mode)) return FTS_DEFAULT;
  entry->fts_dev = st->st_dev;
  entry->fts_ino = st->st_ino;
  entry->fts_nlink = st->st_nlink;
  if (is_dot(entry->fts_name)) return FTS_DOT;
  for (FTSENT* above = entry->fts_parent; above->fts_level >= FTS_ROOTLEVEL;
       above = above->fts_parent) {
    if (above->fts_ino != st->st_ino || above->fts_dev != st->st_dev) continue;
    entry->fts_cycle = above;
    return FTS_DC;
  }
  return FTS_D;
}

FTSENT* sorted(FTS* walk, FTSENT* first, size_t count) {
  if (!walk->fts_compar || count < 2) return first;
  auto** const all = static_cast<FTSENT**>(::malloc(count * sizeof(FTSENT*)));
  if (!all) return first;
  FTSENT** to = all;
  for (FTSENT* entry = first; entry; entry = entry->fts_link) *to++ = entry;
  ::qsort(all, count, sizeof *all, walk->fts_compar);
  for (size_t i = 0; i < count; ++i) all[i]->fts_link = i + 1 < count ? all[i + 1] : nullptr;
  first = all[0];
  ::free(all);
  return first;
}

// The name behind the path of its folder. A root that ends with a slash needs none.
bool put_name(const FTS* walk, const FTSENT* folder, const char* name) {
  size_t length = folder->fts_pathlen;
  if (length > 0 && walk->fts_path[length - 1] == '/') --length;
  const size_t more = ::strlen(name);
  if (length + more + 2 > kLongest) return errno = ENAMETOOLONG, false;
  walk->fts_path[length] = '/';
  ::memcpy(walk->fts_path + length + 1, name, more + 1);
  return true;
}

FTSENT* stop(FTS* walk) {
  walk->fts_options |= FTS_STOP;
  return nullptr;
}

// What is in the current folder.
FTSENT* build(FTS* walk, For what) {
  FTSENT* const folder = walk->fts_cur;
  DIR* const listing = ::opendir(folder->fts_accpath);
  if (!listing) {
    if (what == For::reading) {
      folder->fts_info = FTS_DNR;
      folder->fts_errno = errno;
    }
    return nullptr;
  }
  FTSENT *first = nullptr, **last = &first;
  size_t count = 0;
  bool good = true;
  while (const dirent64* const one = ::readdir64(listing)) {
    if (is_dot(one->d_name) && !has(walk, FTS_SEEDOT)) continue;
    FTSENT* const entry = make(walk, one->d_name);
    good = entry && put_name(walk, folder, one->d_name);
    if (!good) {
      ::free(entry);
      break;
    }
    entry->fts_level = static_cast<short>(folder->fts_level + 1);
    entry->fts_parent = folder;
    entry->fts_pathlen = static_cast<unsigned short>(::strlen(walk->fts_path));
    entry->fts_accpath = entry->fts_path;
    const bool plain = has(walk, FTS_NOSTAT) && has(walk, FTS_PHYSICAL) && one->d_type != DT_DIR &&
                       one->d_type != DT_UNKNOWN;
    entry->fts_info = what == For::names || plain ? FTS_NSOK : look(walk, entry, false);
    *last = entry;
    last = &entry->fts_link;
    ++count;
  }
  const int code = errno;
  ::closedir(listing);
  walk->fts_path[folder->fts_pathlen] = '\0';
  if (!good) {
    drop_all(first);
    folder->fts_info = FTS_ERR;
    errno = code;
    return stop(walk);
  }
  if (count == 0 && what == For::reading) folder->fts_info = FTS_DP;
  return sorted(walk, first, count);
}

// Another root: the path begins anew, and its name is its last part.
FTSENT* load(FTS* walk, FTSENT* root) {
  root->fts_pathlen = root->fts_namelen;
  ::memcpy(walk->fts_path, root->fts_name, root->fts_namelen + size_t{1});
  const char* const slash = ::strrchr(root->fts_name, '/');
  if (slash && (slash != root->fts_name || slash[1])) {
    root->fts_namelen = static_cast<unsigned short>(::strlen(slash + 1));
    ::memmove(root->fts_name, slash + 1, root->fts_namelen + size_t{1});
  }
  root->fts_accpath = root->fts_path = walk->fts_path;
  walk->fts_dev = root->fts_dev;
  return walk->fts_cur = root;
}

FTSENT* enter(FTS* walk, FTSENT* entry) {
  if (!put_name(walk, entry->fts_parent, entry->fts_name)) return stop(walk);
  return walk->fts_cur = entry;
}

// Into a folder; its own end, if there is nothing in it.
FTSENT* descend(FTS* walk, FTSENT* folder, int instruction) {
  const bool elsewhere = has(walk, FTS_XDEV) && folder->fts_dev != walk->fts_dev;
  const bool skip = instruction == FTS_SKIP || elsewhere;
  if (skip || has(walk, FTS_NAMEONLY)) {
    drop_all(walk->fts_child);
    walk->fts_child = nullptr;
    walk->fts_options &= ~FTS_NAMEONLY;
  }
  if (skip) return folder->fts_info = FTS_DP, folder;
  FTSENT* const first = walk->fts_child ? walk->fts_child : build(walk, For::reading);
  walk->fts_child = nullptr;
  if (!first) return has(walk, FTS_STOP) ? nullptr : folder;
  return enter(walk, first);
}

// The next one beside it, or the folder that it is in.
FTSENT* go_on(FTS* walk, FTSENT* entry) {
  for (;;) {
    FTSENT* const next = entry->fts_link;
    FTSENT* const above = entry->fts_parent;
    ::free(entry);
    walk->fts_cur = next ? next : above;
    if (!next) {
      if (above->fts_level == FTS_ROOTPARENTLEVEL) {
        ::free(above);
        return errno = 0, walk->fts_cur = nullptr;
      }
      walk->fts_path[above->fts_pathlen] = '\0';
      above->fts_info = above->fts_errno ? FTS_ERR : FTS_DP;
      return above;
    }
    if (next->fts_level == FTS_ROOTLEVEL) return load(walk, next);
    if (next->fts_instr != FTS_SKIP) {
      if (FTSENT* const entered = enter(walk, next); !entered) return nullptr;
      if (next->fts_instr == FTS_FOLLOW) next->fts_info = look(walk, next, true);
      next->fts_instr = FTS_NOINSTR;
      return next;
    }
    entry = next;
  }
}

FTS* fail(FTS* walk, FTSENT* roots, FTSENT* above) {
  const int code = errno;
  drop_all(roots);
  ::free(above);
  ::free(walk->fts_path);
  ::free(walk);
  errno = code;
  return nullptr;
}

FTS* open_walk(char* const* paths, int options, Compare compare) {
  if (options & ~FTS_OPTIONMASK) return errno = EINVAL, nullptr;
  auto* const walk = static_cast<FTS*>(::calloc(1, sizeof(FTS)));
  if (!walk) return nullptr;
  walk->fts_options = options | FTS_NOCHDIR | kOurs;
  walk->fts_compar = reinterpret_cast<int (*)(const void*, const void*)>(compare);
  walk->fts_rfd = -1;
  walk->fts_pathlen = static_cast<int>(kLongest);
  walk->fts_path = static_cast<char*>(::calloc(1, kLongest + 1));
  FTSENT* const above = walk->fts_path ? make(walk, "") : nullptr;
  FTSENT *roots = nullptr, **last = &roots;
  size_t count = 0;
  if (!above) return fail(walk, roots, above);
  above->fts_level = FTS_ROOTPARENTLEVEL;
  for (; *paths; ++paths, ++count) {
    FTSENT* const root = **paths ? make(walk, *paths) : (errno = ENOENT, nullptr);
    if (!root) return fail(walk, roots, above);
    root->fts_level = FTS_ROOTLEVEL;
    root->fts_parent = above;
    root->fts_accpath = root->fts_name;
    root->fts_info = look(walk, root, has(walk, FTS_COMFOLLOW));
    if (root->fts_info == FTS_DOT) root->fts_info = FTS_D;
    *last = root;
    last = &root->fts_link;
  }
  roots = sorted(walk, roots, count);
  walk->fts_cur = make(walk, "");
  if (!walk->fts_cur) return fail(walk, roots, above);
  walk->fts_cur->fts_link = roots;
  walk->fts_cur->fts_parent = above;
  walk->fts_cur->fts_info = FTS_INIT;
  return walk;
}

}  // namespace

extern "C" {

FTS* fb_fts_open(char* const* paths, int options, Compare compare) {
  for (char* const* path = paths; path && *path; ++path)
    if (Route(AT_FDCWD, *path).served()) return open_walk(paths, options, compare);
  return next_pointer<"fts_open", FTS*>(paths, options, compare);
}

FTSENT* fb_fts_read(FTS* walk) {
  if (!has(walk, kOurs)) return next_pointer<"fts_read", FTSENT*>(walk);
  FTSENT* const entry = walk->fts_cur;
  if (!entry || has(walk, FTS_STOP)) return nullptr;
  const int instruction = entry->fts_instr;
  entry->fts_instr = FTS_NOINSTR;
  const bool link = entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE;
  if (instruction == FTS_AGAIN || (instruction == FTS_FOLLOW && link)) {
    entry->fts_info = look(walk, entry, instruction == FTS_FOLLOW);
    return entry;
  }
  return entry->fts_info == FTS_D ? descend(walk, entry, instruction) : go_on(walk, entry);
}

FTSENT* fb_fts_children(FTS* walk, int what) {
  if (!has(walk, kOurs)) return next_pointer<"fts_children", FTSENT*>(walk, what);
  if (what != 0 && what != FTS_NAMEONLY) return errno = EINVAL, nullptr;
  errno = 0;
  if (!walk->fts_cur || has(walk, FTS_STOP)) return nullptr;
  if (walk->fts_cur->fts_info == FTS_INIT) return walk->fts_cur->fts_link;
  if (walk->fts_cur->fts_info != FTS_D) return nullptr;
  drop_all(walk->fts_child);
  walk->fts_options = (walk->fts_options & ~FTS_NAMEONLY) | what;
  walk->fts_child = build(walk, what ? For::names : For::children);
  return walk->fts_child;
}

int fb_fts_set(FTS* walk, FTSENT* entry, int instruction) {
  if (!has(walk, kOurs)) return next<"fts_set", int>(walk, entry, instruction);
  if (instruction < 0 || instruction > FTS_SKIP) return errno = EINVAL, 1;
  entry->fts_instr = static_cast<unsigned short>(instruction);
  return 0;
}

int fb_fts_close(FTS* walk) {
  if (!has(walk, kOurs)) return next<"fts_close", int>(walk);
  for (FTSENT* entry = walk->fts_cur; entry;) {
    FTSENT* const above = entry->fts_parent;
    drop_all(entry);
    entry = above;
  }
  drop_all(walk->fts_child);
  ::free(walk->fts_path);
  ::free(walk);
  return 0;
}

FOREBAY_EXPORT(fts_open, fb_fts_open);
FOREBAY_EXPORT(fts64_open, fb_fts_open);
FOREBAY_EXPORT(fts_read, fb_fts_read);
FOREBAY_EXPORT(fts64_read, fb_fts_read);
FOREBAY_EXPORT(fts_children, fb_fts_children);
FOREBAY_EXPORT(fts64_children, fb_fts_children);
FOREBAY_EXPORT(fts_set, fb_fts_set);
FOREBAY_EXPORT(fts64_set, fb_fts_set);
FOREBAY_EXPORT(fts_close, fb_fts_close);
FOREBAY_EXPORT(fts64_close, fb_fts_close);
}
