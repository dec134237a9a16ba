// What the verbs on names do, apart from the command line: listing, removing trees, making folders.
// Blocking, on the caller's thread.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "assembly/json.h"
#include "store/path.h"
#include "store/store.h"

namespace forebay {

// Every entry of a directory but "." and "..", with handle and attributes, sorted by name.
Result<std::vector<Entry>> list_directory(Store& store, const CallerRef& caller,
                                          const Handle& directory);
Result<std::string> read_link(Store& store, const CallerRef& caller, const Handle& link);

// Removes a name and, if it is a directory, everything below it. The first error stops it; its text
// is the path below `place` that could not be removed, empty for `place` itself.
Result<void> remove_tree(Store& store, const CallerRef& caller, const Place& place);

// Makes a directory and those above it that are missing.
Result<void> make_path(Store& store, const CallerRef& caller, const std::string& path,
                       uint32_t mode);

// The last component of a path, without trailing slashes; empty for the root.
std::string base_name(std::string_view path);

// "drwxr-xr-x"
std::string mode_text(const Attr& attr);
const char* type_name(FileType type);
std::string time_text(const FileTime& time, const char* format);
Json attr_json(const std::string& name, const Attr& attr);

}  // namespace forebay
