// Paths whose last component is not followed: what makes, removes and renames. Blocking.
#pragma once

#include <string_view>

#include "capi/store.h"
#include "store/path.h"

namespace forebay::capi {

// The directory and the last component of a path, whether or not it exists: one lookup, however
// long the path. Slashes at its end are left out. `root` is the errno for the export's root, which
// has no name.
Result<Place> name_in(fb_store& store, std::string_view path, int root);

inline bool wants_directory(std::string_view path) {
  return path.ends_with('/');
}

}  // namespace forebay::capi
