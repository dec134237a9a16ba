// Who is at the other end of a socket, as the kernel knows it: the only source of identity on one
// machine that a client cannot forge. Any thread; a few system calls, no waiting for the peer.
//
//  - Unix sockets: the credentials and groups that the peer had when it connected (or listened).
//  - TCP between two ends of this machine: the owner of the peer's socket, asked of the kernel by
//    its addresses and ports (sock_diag), with the groups that the user database gives that user.
//    It never speaks for others.
//  - Everything else: unknown, a null caller.
#pragma once

#include "transport/transport.h"

namespace forebay {

Peer peer_of_unix_socket(int fd);
Peer peer_of_tcp_socket(int fd);

}  // namespace forebay
