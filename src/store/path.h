// Paths of an export to files, for front doors. Stores never follow symbolic links: whoever
// consumes a Store does, here, by lookup and readlink, so that a link can only ever lead to another
// place in the same export.
//
// "/a/b" and "a/b" are the same path. An absolute target of a link starts at the export's root.
// ".." goes up from where the walk is, after links, and stays at the root there. A path without
// links,
// "." or ".." costs one lookup, however long it is.
//
// Blocking, on the caller's thread; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "store/store.h"

namespace forebay {

struct Found {
  Handle handle;
  Attr attr;
};

// Where a name stands: a directory and one component in it, whether or not it exists. The root has
// an empty name.
struct Place {
  Handle directory;
  std::string name;
  std::optional<Found> found;
};

enum class Follow { no, yes };  // of a symbolic link at the path's end; others are always followed

// ENOENT, ENOTDIR, EACCES, ENAMETOOLONG, and ELOOP after 40 links. A path that ends in '/' must be
// a directory. The error's text is left to the caller, who knows what the user typed.
Result<Found> find_path(Store& store, const CallerRef& caller, std::string_view path,
                        Follow follow = Follow::yes);

// As find_path, but the last component may be missing; a dangling link leads to the place that it
// points at.
Result<Place> locate(Store& store, const CallerRef& caller, std::string_view path,
                     Follow follow = Follow::yes);

}  // namespace forebay
