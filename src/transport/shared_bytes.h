// SharedBytes: the byte stream of a client and a server on one node: frames through rings in memory
// that they share, over a Unix socket that stays for its end (a dead peer closes it) and for
// ringing.
//
// A small frame costs no system call while the other side is awake. One that sleeps is woken by a
// write to the server's eventfd, which the server only watches; or by a byte on the socket, which
// the server can send without being blocked by anything that the client does. (An eventfd of the
// client's could be made to block its writer.)
//
// How it begins, before any frame: the client sends an offer on the socket, 32 bytes with the memfd
// attached; the server answers with 16 bytes and its eventfd, or with an errno and goes on without.
// A connection that does not begin with an offer is a plain one.
//
// On loops that are EpollLoops.
#pragma once

#include <array>
#include <memory>

#include "core/fd.h"
#include "transport/byte_stream.h"
#include "transport/shared_region.h"

namespace forebay {

// The server's end: looks at how it begins. An area beyond `max_area` is refused.
std::unique_ptr<ByteStream> make_unix_server_bytes(Fd socket, uint64_t max_area);

// The client's end of one that the server has agreed to.
std::unique_ptr<ByteStream> make_shared_client_bytes(Fd socket, Fd bell,
                                                     std::shared_ptr<SharedRegion> region);

// The client's side of the beginning. send_offer() does not block: an offer fits into a new socket.
Result<void> send_offer(int socket, const SharedRegion& region);
// The server's answer: its bell; EAGAIN if it has not come yet; another error if the server would
// not, and then the connection goes on as a plain one (`plain`) or is of no use.
struct OfferAnswer {
  Fd bell;
  bool plain = false;
};
Result<OfferAnswer> receive_answer(int socket);

}  // namespace forebay
