// The limit on the size of files that this process has (RLIMIT_FSIZE, `ulimit -f`), for files at a
// server, whose kernel knows nothing of it; for those of this machine its own kernel sees to it. As
// there, a write does what lies before the limit, and nothing is made longer than it: EFBIG. But
// there is no signal, which would end the program.
//
// Any thread.
#pragma once

#include "store/store.h"

namespace forebay::mpiio {

// Store::call(), and within the limit.
Result<Reply> call_within_limit(Store& store, Request request);

}  // namespace forebay::mpiio
