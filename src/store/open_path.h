// Opening a file of a Store by its path, as open(2) does: what front doors share.
//
// Blocking, on the caller's thread; any thread.
#pragma once

#include <string_view>

#include "store/path.h"

namespace forebay {

struct Opened {
  Handle handle;
  Right right;
  Attr attr;
};

struct OpenHow {
  int flags = 0;        // O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_NOFOLLOW
  uint32_t mode = 0;    // of a file that is created
  uint32_t hinted = 0;  // kFlagDirect
};

Result<Opened> open_path(Store& store, const CallerRef& caller, std::string_view path, OpenHow how);

// The directory and the last component of a path, whether or not it exists: one lookup, however
// long the path. Slashes at its end are left out. `root` is the errno for the Store's root, which
// has no name.
Result<Place> name_in(Store& store, const CallerRef& caller, std::string_view path, int root);

// A server creates with exactly the mode that it is told: the umask is the front door's to apply.
uint32_t masked(unsigned mode);

Access access_of(int flags);

}  // namespace forebay
