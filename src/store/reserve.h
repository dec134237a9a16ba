// Space for a file of any Store, as posix_fallocate(3) has it: what front doors share.
//
// Reserved by one request, or where nothing is reserved by zeros (store/posix_fill.h), a piece by a
// request: a server waits for none longer than its deadline, and what is written takes its time.
// If the file system says that it has not so much, ENOSPC before anything is written. An error
// later (also ENOSPC: others write too, and holes are not counted) leaves what was written.
//
// Blocking, on the caller's thread; any thread.
#pragma once

#include <functional>

#include "core/op.h"
#include "core/result.h"

namespace forebay {

// One request, done and answered: Store::call(), or what a front door puts around it.
using CallStore = std::function<Result<Reply>(Request&&)>;

// One piece at 1 MiB/s is in time for a server's deadline, as long as that is a minute.
inline constexpr uint64_t kFillAtOnce = 64_MiB;

// `request`: a fallocate without flags.
Result<void> reserve(const CallStore& call, const Request& request);

}  // namespace forebay
