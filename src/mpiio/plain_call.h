// The data call that is most frequent: one run of bytes in memory, one in a file of this machine,
// by this rank alone. It is one system call, and to think of all that others need (types, lists of
// pieces, locks, other ranks) would take longer than that.
#pragma once

#include <optional>

#include "mpiio/data_calls.h"

namespace forebay::mpiio {

// How many bytes it has moved, which are all. Nothing: it is to be done as any other, by `call` and
// `offset` as they are now (the individual pointer may have moved on).
std::optional<uint64_t> move_plainly(File& file, DataCall& call, MPI_Offset& offset,
                                     const Buffer& buffer);

}  // namespace forebay::mpiio
