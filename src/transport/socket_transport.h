// SocketTransport: frames over TCP and Unix sockets, on loops that are EpollLoops.
//
// A small frame costs its sender one system call, tried inside send(), and its receiver two: the
// loop's wait and one receive; through shared memory (shared_bytes.h) none while both ends are
// awake. Messages are received into a small buffer per connection; payloads straight into the
// memory that the handler names. Frames that a handler sends while it is being called go out
// together when it returns.
//
// The transport itself holds only options: connections, listeners and connects under way do not
// need it any more and must be gone before their loop is. A loop destroyed first drops a connect
// unrun.
//
// Listening: a Unix socket's stale file (left by a dead server) is replaced; one that somebody
// listens on is EADDRINUSE. TCP listens on loopback addresses only, because what the kernel says
// about a peer ends at the machine's edge: others are EPERM, unless there is a key that peers prove
// to each other (key_handshake.h), or whoever listens has a way of its own to know its peers and
// says so. With a key, connections to TCP addresses are made by proving it, and every frame is
// sealed (frame_seal.h); one that is accepted may still come without, from this machine.
#pragma once

#include <sys/types.h>

#include "transport/key_handshake.h"
#include "transport/transport.h"

namespace forebay {

struct SocketOptions {
  // Of a Unix socket's file. Everybody may connect: access is decided by the peer's credentials.
  mode_t unix_mode = 0666;
  // TCP: a peer whose machine or network died is noticed after about so long.
  Duration tcp_dead_after = std::chrono::seconds(60);
  // TCP: may listen on every address; peers prove who they are above the transport.
  bool peers_prove_themselves = false;
  // TCP: what peers prove to each other; null: nothing.
  AuthKeyRef key = {};
  KeyRole role = KeyRole::client;                 // as what it proves it when it connects
  Duration key_limit = std::chrono::seconds(10);  // how long a peer may take to prove it
  // Unix: a client offers to share memory with an area of so many bytes for bulk data; 0: it does
  // not.
  uint64_t shared_area = 0;
  // Unix: lent to the server together with the area (Transport::lend).
  std::shared_ptr<SharedPages> lent = {};
  // Unix: a server takes offers up to so many, of either.
  uint64_t max_shared_area = uint64_t(1) << 30;
};

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(SocketOptions options = {}) : options_(std::move(options)) {}

  Result<std::unique_ptr<Listener>> listen(const Address& address, Loop& loop,
                                           Accept accept) override;
  void connect(const Address& address, Loop& loop, Duration timeout, Connected done) override;
  void lend(std::shared_ptr<SharedPages> memory) override { options_.lent = std::move(memory); }

 private:
  SocketOptions options_;
};

}  // namespace forebay
