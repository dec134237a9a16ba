// The seam between the two libraries of the preload.
//
// libforebay-preload.so (the shim) is in every process: it needs nothing but libc, decides whose
// call it is, and hands everything else to the kernel untouched. libforebay-served.so, which has
// the Store and all that it needs, is loaded by the first call that is for Forebay (or before a
// fork, shim.h); this table of its functions is all that the shim knows of it.
//
// As the kernel's: a function returns -1 and sets errno. Any thread. The shim keeps its own
// functions out of the way while one of these runs (shim.h, Inside).
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace forebay::preload {

// Descriptors of this process. Null: the kernel's. kOwn: the client's own (sockets and the like),
// which nobody else may close. kInherited: an open file of ours that came over an exec and was not
// used yet. Anything else: an open file of ours.
inline constexpr int kMostDescriptors = 1 << 20;
using Slot = std::atomic<void*>;
inline void* const kOwn = reinterpret_cast<void*>(1);
inline void* const kInherited = reinterpret_cast<void*>(2);

// Descriptors from `end` on were never ours: whoever looks at all of them looks at few.
inline void set_slot(Slot* slots, std::atomic<int>& end, int fd, void* what) {
  int known = end.load(std::memory_order_relaxed);
  while (fd >= known && !end.compare_exchange_weak(known, fd + 1)) {
  }
  slots[fd].store(what, std::memory_order_release);
}

// As an errno: a symbolic link on the way leads out of what is served, to the kernel. The shim, who
// knows all names, then finds the place and calls again, or the kernel. Never seen by a program.
inline constexpr int kLeadsOut = EREMCHG;

// What a call is about: an open file, or a name.
struct Target {
  int fd = -1;                   // >= 0: this open file
  const char* inside = nullptr;  // its path in the export
  const char* shown = nullptr;   // as programs know it, without ".", ".." and "//"
  bool follow = true;            // a symbolic link at the end
};

struct Transfer {
  int fd;
  bool write;
  const iovec* pieces;
  int count;
  off64_t at;   // with `placed`
  bool placed;  // otherwise at the description's own offset
  bool append;  // RWF_APPEND
  bool sync;    // RWF_DSYNC, RWF_SYNC
};

struct Change {
  bool mode = false, owner = false, times = false;
  mode_t to_mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  timespec atime = {}, mtime = {};  // as utimensat(2) has them
};

struct Range {
  off64_t at, length;
  int mode;
  bool fill = false;  // as posix_fallocate does
};

struct Shim {
  Slot* slots;
  std::atomic<int>* slots_end;
  void (*say)(const char* line);  // on standard error, in one write
  void (*count_refusal)();
  // The place in the export of a whole path, into PATH_MAX bytes; false: it is the kernel's.
  bool (*inside)(const char* path, char* to);
};

struct Served {
  // ---- Open files ----
  int (*open)(const Target&, int flags, mode_t mode);
  void (*duplicated)(int fd, int copy);
  void (*closed)(void* file);  // one descriptor fewer
  ssize_t (*move)(const Transfer&);
  off64_t (*seek)(int fd, off64_t by, int whence);
  int (*truncate)(const Target&, off64_t size);
  int (*sync)(int fd, bool data_only);
  int (*allocate)(int fd, const Range&);
  int (*get_flags)(int fd);
  int (*set_flags)(int fd, int flags);
  int (*lock)(int fd, int command, flock64* lock);
  int (*lock_whole)(int fd, int how);
  int (*shown)(int fd, char* path, size_t room);  // the path it was opened by
  // ---- Names and attributes ----
  int (*status)(const Target&, struct statx* to);
  int (*access)(const Target&, int mode, bool effective);
  int (*change)(const Target&, const Change&);
  int (*rename)(const Target&, const Target& to, unsigned flags);
  int (*link)(const Target&, const Target& to);
  int (*symlink)(const char* text, const Target&);
  ssize_t (*readlink)(const Target&, char* to, size_t room);
  int (*remove)(const Target&, bool directory);
  int (*mkdir)(const Target&, mode_t mode);
  int (*make_file)(const Target&, mode_t mode);
  int (*file_system)(const Target&, struct statvfs* to);
  ssize_t (*get_xattr)(const Target&, const char* name, void* to, size_t room);
  int (*set_xattr)(const Target&, const char* name, const void* value, size_t size, int flags);
  ssize_t (*list_xattr)(const Target&, char* to, size_t room);
  int (*remove_xattr)(const Target&, const char* name);
  // ---- Directories, of an open one ----
  void* (*list)(int fd);
  int (*next_entry)(void* listing, dirent64* to);  // 1: one; 0: the end
  void (*seek_entry)(void* listing, long cookie);
  void (*end_list)(void* listing);
  // ---- Whole files ----
  void* (*map)(int fd, void* at, size_t size, int protection, int flags, off64_t from);
  int (*copy)(const Target&);  // a memfd with its bytes, to be executed or loaded
  // ---- The process ----
  void (*before_exec)();  // reports what was done so far, and says goodbye if nothing is lost by it
  void (*leave)();        // says goodbye to the server, if nobody is in the middle of something
};

// Any thread, any number of times.
extern "C" const Served* forebay_served(const Shim* shim);

}  // namespace forebay::preload
