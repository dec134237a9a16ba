// Addresses as the kernel takes them, and the options of our sockets. Used by listening and
// connecting.
#pragma once

#include <sys/socket.h>

#include "core/fd.h"
#include "transport/socket_transport.h"
#include "transport/transport.h"

namespace forebay {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  bool loopback() const;  // of TCP
  uint16_t port() const;  // of TCP
};

// EINVAL for a TCP host that is neither numeric nor "localhost": looking up names would block a
// loop.
Result<SocketAddress> to_socket_address(const Address& address);

// A new stream socket, non-blocking and closed on exec.
Result<Fd> make_socket(const Address& address, int family);

// Buffers, keepalive and no delay, for a connected or connecting socket. Best effort: a socket with
// the kernel's defaults still works.
void tune_socket(int fd, Address::Kind kind, const SocketOptions& options);

}  // namespace forebay
