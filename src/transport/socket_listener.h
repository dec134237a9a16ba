// Listening on TCP and Unix sockets (socket_transport.h says what is promised).
#pragma once

#include "transport/socket_transport.h"

namespace forebay {

Result<std::unique_ptr<Listener>> listen_on_socket(const Address& address, Loop& loop,
                                                   const SocketOptions& options,
                                                   Transport::Accept accept);

}  // namespace forebay
