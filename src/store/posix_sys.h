// The few system calls that the posix store is made of, with their errors as Result: confined
// opening, attributes.
//
// Nothing here knows of handles, rights or callers. Any thread; everything acts as the identity
// that the thread has (posix_identity.h).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/fd.h"
#include "core/op.h"

namespace forebay::posix {

// The error of the system call that just failed, by errno.
Error failed(std::string what);

// Which inode, for as long as the file system keeps it: the birth time tells a reused number apart.
struct InodeId {
  uint64_t device = 0;
  uint64_t inode = 0;
  FileTime birth;
  bool operator==(const InodeId&) const = default;
};
struct InodeIdHash {
  size_t operator()(const InodeId& id) const {
    return id.inode * 0x9e3779b97f4a7c15u ^ id.device ^ id.birth.nanoseconds;
  }
};

struct FileStat {
  Attr attr;  // fs_id is left to the store
  InodeId id;
};

// Attributes of what an O_PATH (or other) descriptor names: one system call.
Result<FileStat> stat_of(int fd);

// What kind of file system a descriptor is on, as far as it matters.
struct FsKind {
  bool local =
      false;          // of this machine: its calls end in microseconds or at least in a disk's time
  bool fuse = false;  // or not known: its kernel handles die with the mount
};
FsKind fs_kind(int fd);

// May a path lead into another mount? Servers do not let it: their handles could not name what is
// there. An application's file may be mounted by itself, as containers do with single files.
enum class Mounts : uint8_t { stay, enter };

// How paths are resolved, always: below the directory, through no symbolic link. EXDEV for what
// leaves, ELOOP for a link on the way. Repeats when the kernel saw a rename race. Servers need
// openat2 for it; an application, which is confined by nothing, opens single names without it.
Result<Fd> open_beneath(int directory, const std::string& path, int flags, uint32_t mode = 0,
                        Mounts mounts = Mounts::stay);

// O_PATH on one name or a path below `directory`; a last name that is a symbolic link names the
// link.
Result<Fd> open_path(int directory, const std::string& path, Mounts mounts = Mounts::stay);

// What an O_PATH descriptor names, opened for use with the thread's identity: regular files and
// directories only, so that no fifo, device or socket is ever opened.
Result<Fd> reopen(int path_fd, FileType type, int flags);

// "/proc/self/fd/N" for the calls that have no form with a descriptor of O_PATH.
class ProcPath {
 public:
  explicit ProcPath(int fd);
  const char* c_str() const { return text_; }

 private:
  char text_[32];
};

// EMFILE or ENFILE: closing some cached descriptors and trying once more may help.
bool out_of_descriptors(const Error& error);

}  // namespace forebay::posix
