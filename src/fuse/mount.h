// Mount: a Store as a file system of the kernel, from the moment that it can be used until it is
// unmounted, by us or by anybody else. The only header of this folder that others include, with
// mount_options.h.
//
// Threads of its own serve it. start() and the rest are for one thread; the Store outlives it.
#pragma once

#include <memory>
#include <string>

#include "fuse/mount_options.h"
#include "store/store.h"

namespace forebay::fuse {

class Mount {
 public:
  // Mounted and served when it returns. The error says what is in the way: the mount point,
  // libfuse, /dev/fuse.
  static Result<std::unique_ptr<Mount>> start(Store& store, const MountOptions& options);
  virtual ~Mount() = default;  // waits for the kernel to let go: unmount first

  // A descriptor that can be read from when the kernel has let go.
  virtual int ended() const = 0;
};

enum class Unmount { now, lazily };
// EBUSY while files of it are open (unless lazily: then it is out of sight at once, and ends with
// their last one), EINVAL if it is not a mount of ours.
Result<void> unmount(const std::string& mount_point, Unmount how);

// Is it a mount of ours, as /proc/self/mountinfo has it? Of its absolute path.
bool is_mounted(const std::string& mount_point);

}  // namespace forebay::fuse
