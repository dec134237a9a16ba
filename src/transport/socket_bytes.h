// A connected, non-blocking stream socket as a ByteStream.
#pragma once

#include <memory>

#include "core/fd.h"
#include "transport/byte_stream.h"

namespace forebay {

std::unique_ptr<ByteStream> make_socket_bytes(Fd socket);

}  // namespace forebay
