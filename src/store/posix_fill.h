// Space for a file where the file system reserves none (fallocate is EOPNOTSUPP: CephFS, NFS before
// 4.2, FUSE without it, files without extents): zeros, written where nothing is yet.
//
// Behind the end of the file they are appended, so what others write there meanwhile stays, and the
// file may get longer than was asked for. Within the file they go into its holes, as far as the
// file system shows them, a step at a time; and if the range begins beyond the end of the file, so
// does its first step, where that is. Only what is written in the place of a step at that very
// moment, by somebody whom no reservation excludes, may be lost. ENOSPC before anything is
// appended, if the file system says that it has not so much; an error later leaves what was
// written, as fallocate does. Any thread; may take as long as it takes to write so much
// (store/reserve.h asks for a piece at a time).
#pragma once

#include <stop_token>

#include "core/extents.h"
#include "core/result.h"

namespace forebay::posix {

// Is this what fallocate fails with where there is none?
bool reserves_nothing(int code);

// By `reader`, a descriptor of the same file (`fd` itself, if it is one to read by), what looks
// like a hole is seen to be one; with -1 the file is sent to the device before each step instead,
// which is slow.
Result<void> fill(int fd, int reader, Extent where, const std::stop_token& stop);

}  // namespace forebay::posix
