// put and get, apart from the command line: a local file to a path of a Store, and back. Both write
// to a hidden name beside the target and rename at the end, so that a failed or interrupted copy
// leaves nothing behind and never a half file under the real name.
#pragma once

#include <string>

#include "transfer.h"

namespace forebay {

// Permissions are as with cp: a file that is replaced keeps its own, a new one gets those of the
// source without what the umask takes away.

// The bytes of descriptor `from` become the file at `path`; `mode` is for a new one (the bits as
// they are: a server applies no umask). A symbolic link is followed, a directory is EISDIR. Returns
// the bytes.
Result<uint64_t> put_file(Store& store, const CallerRef& caller, int from, uint32_t mode,
                          const std::string& path, const Watch& watch);

// A file of the Store, opened for reading.
struct OpenedCopy {
  OpenFile file;
  Attr attr;
};
Result<OpenedCopy> open_file(Store& store, const CallerRef& caller, const std::string& path);
void close_file(Store& store, const CallerRef& caller, const OpenFile& file);

// The whole file to the local path `to`.
Result<void> get_file(Store& store, const CallerRef& caller, const OpenedCopy& opened,
                      const std::string& to, const Watch& watch);

uint32_t umask_now();

// A hidden name of at most kMaxName bytes for a copy of `name` that is not complete yet.
std::string partial_name(const std::string& name);

}  // namespace forebay
