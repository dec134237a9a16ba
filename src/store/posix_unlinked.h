// Files that lost their name while somebody has them open: each keeps a link in the own folder
// (.forebay/unlinked) until its last right is closed, so that its handle and rights work on, also
// after the server was restarted.
//
// The link is made with the server's own rights before the caller's unlink or rename takes the
// name, and taken back if the kernel refuses the caller; so the kernel alone decides who may remove
// what, and the folder (mode 0700, the server's) gives nobody anything. It is made when first
// needed and removed when empty.
//
// Links found at start belong to users of a former life: they have `grace` to come back and present
// their right; then what nobody has open is deleted. Servers that share a directory hold a shared
// flock on the folder; leftovers are deleted only by one that is alone.
//
// Any thread. Everything here acts with the server's own rights: become_server() first.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include "core/clock.h"
#include "store/posix_identity.h"
#include "store/posix_sys.h"

namespace forebay::posix {

class UnlinkedFiles {
 public:
  // Without `grace`, what a former life left is left to others.
  // `in_use` says whether a file has open rights; called from a thread of this object.
  UnlinkedFiles(int top, const Identity& identity, std::optional<Duration> grace,
                Callback<bool(const InodeId&)> in_use);
  ~UnlinkedFiles();

  // Gives the file a link in the folder. An error if the file system has none to give.
  Result<void> keep(int path_fd, const InodeId& id);
  // Takes it away again: the file goes if that was its last one.
  void erase(const InodeId& id);
  bool contains(const InodeId& id) const;

 private:
  Result<void> open_folder(bool make);
  Result<void> link_once(int path_fd, const std::string& name);
  void find_leftovers();
  void wait_and_clean(Duration grace);
  bool clean();

  const int top_;
  const Identity& identity_;
  Callback<bool(const InodeId&)> in_use_;
  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  Fd folder_;
  std::unordered_set<InodeId, InodeIdHash> kept_;
  std::vector<InodeId> leftovers_;
  std::thread cleaner_;  // only if there were leftovers
};

}  // namespace forebay::posix
