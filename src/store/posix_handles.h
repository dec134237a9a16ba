// Portable handles of a directory tree: sealed names of files that outlive the server.
//
// Two kinds, told apart by their first byte, each with the export's id:
//  - kernel: what name_to_handle_at gives. Follows its file through renames, whoever makes them,
//  and
//    has no limit on depth. Needs CAP_DAC_READ_SEARCH and a file system that keeps handles. Such a
//    handle goes on naming its file if somebody moves that file out of the export directory behind
//    our back: it was inside when it was named.
//  - path: path below the top, inode, birth time and (except on FUSE) a hash of what the kernel's
//    handle would be, which are compared again when it is resolved. Renames
//    made through this store are followed as long as it lives and remembers them (kRemembered);
//    otherwise a moved file is ESTALE. Paths beyond kMaxPath are ENAMETOOLONG.
// A handle is believed only because it is sealed (sealed.h): EBADF otherwise.
//
// Any thread. resolve() acts with the server's own rights: the caller becomes_server() first.
#pragma once

#include <deque>
#include <mutex>

#include "store/posix_sys.h"
#include "store/sealed.h"

namespace forebay::posix {

// The store's own folder at the top of an export, and the one in it that keeps files which were
// unlinked while open.
inline constexpr const char* kUnlinkedFolder = ".forebay/unlinked";
// The name of an unlinked file there: it follows from the inode, so that a path handle finds it.
std::string unlinked_name(uint64_t inode, FileTime birth);

class Handles {
 public:
  // `top` must stay open as long as this lives.
  Handles(SealKey key, uint64_t export_id, int top, FsKind fs, bool kernel,
          Mounts mounts = Mounts::stay);

  // Does this process get kernel handles of this directory, and files back from them? Not on FUSE,
  // whose handles die with the mount.
  static bool kernel_handles_work(int top, FsKind fs);

  bool kernel() const { return kernel_; }

  // What all handles of one file share: of a path handle, all but the path.
  static std::string_view identity(const Handle& handle);

  // The handle of what the descriptor names, whose identity is known.
  Result<Handle> make(int fd, const InodeId& id) const;
  Result<Handle> make_top(const InodeId& id) const;

  // An O_PATH descriptor. EBADF if forged or of another export, ESTALE if the file is gone.
  Result<Fd> resolve(const Handle& handle) const;
  // Only whether it was sealed by us for this export.
  Result<void> verify(const Handle& handle) const;

  // Where the descriptor's file is now, relative to the top ("" is the top). ESTALE if outside.
  Result<std::string> path_of(int fd) const;
  // Tells of a rename or an exchange done through the store; only path handles need it.
  void renamed(std::string from, std::string to, bool exchange);

 private:
  static constexpr size_t kRemembered = 1024;
  struct Move {
    std::string from, to;
    bool exchange;
  };

  Handle make_path(int fd, const InodeId& id, const std::string& path) const;
  Result<std::string_view> unseal(const Handle& handle) const;
  Result<Fd> resolve_kernel(std::string_view body) const;
  Result<Fd> resolve_path(std::string_view body) const;
  std::vector<std::string> moved_to(const std::string& path) const;

  const SealKey key_;
  const uint64_t export_id_;
  const int top_;
  const bool kernel_;
  const bool fuse_;
  const Mounts mounts_;
  mutable std::mutex mutex_;
  std::deque<Move> moves_;  // oldest first
};

}  // namespace forebay::posix
