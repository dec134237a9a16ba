// Reads and writes of files around the page cache (O_DIRECT) that a client does itself
// (shortcuts.h): of whole blocks, from and to memory that a device can use as it is. Anything else
// is the server's, which knows what to do with edges.
//
// Blocking. Any thread.
#pragma once

#include <functional>

#include "core/op.h"
#include "store/posix_pool.h"

namespace forebay {

bool is_blocks(const Request& request, uint64_t block);

// Does the kernel pin the memory of such reads (Linux 6.5)? Before, a fork meanwhile could leave
// what was read to the child (open(2)).
bool may_read_around_cache();

// A part of the stream of a request that is_blocks(), whole blocks too; the kernel has all of it in
// hand at once. The count is short only at the end of file; an error carries done(). ENOTCONN: what
// was begun must be begun again, by somebody else.
Result<uint64_t> move_blocks(int fd, const Request& request, Length from, Length length,
                             uint64_t block);

// All of a request of so many bytes, step by step, by this thread and by one of the pool's, as soon
// as that has one: a call returns when the last of what the kernel made of it is done, and the
// device would have nothing to do until the next. `move` is called on both, with a place in the
// stream and a length.
using MoveStep = std::function<Result<uint64_t>(Length from, Length length)>;
Result<uint64_t> move_by_two(Length total, Length step, const MoveStep& move, posix::Pool& pool);

}  // namespace forebay
