// Asio's own loop behind an AsioLoop: for transports, which watch descriptors on it, and for nobody
// else.
#pragma once

#include "loop/asio_loop.h"

namespace forebay {

// The loop must be an AsioLoop (asserted).
asio::io_context& io_context_of(Loop& loop);

}  // namespace forebay
