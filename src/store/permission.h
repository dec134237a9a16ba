// Who may do what by POSIX mode bits: pure functions for stores that have no kernel to ask.
// They follow Linux, with uid 0 as the one that overrides (no capabilities, no ACLs).
#pragma once

#include "core/op.h"

namespace forebay::permission {

enum Want : uint32_t { kExecute = 1, kWrite = 2, kRead = 4 };

bool in_group(const Caller& caller, uint32_t gid);
// `want` is a combination of Want; for directories kExecute is the right to search.
bool may(const Caller& caller, const Attr& file, uint32_t want);
uint32_t wants(Access access);
// May an entry of `directory` that names `file` be removed or replaced? EACCES without write and
// search on the directory, EPERM by its sticky bit.
Result<void> may_unlink(const Caller& caller, const Attr& directory, const Attr& file);

// The owner, group and mode of a new file in `directory`.
void inherit(const Caller& caller, const Attr& directory, Attr& made);
// The mode after data was written, or the owner changed: set-id bits go.
uint32_t without_set_id(uint32_t mode);

// Checks `set` and returns the attributes after it, times of "now" included.
Result<Attr> apply(const Caller& caller, const Attr& file, const SetAttr& set, FileTime now);

}  // namespace forebay::permission
