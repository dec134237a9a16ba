// Arrivals: TCP connections that a server with a key has accepted and does not know yet. Each
// proves the key (key_handshake.h) and is handed over, or is closed, with a line in the log that
// says why. One that begins otherwise is handed over as it is: on this machine the kernel knows who
// it is, and any other is told by the server that it needs the key.
//
// Bounded: so many at the same time, so long for each, and nothing of a size that a peer chooses is
// kept before its proof is good.
//
// On the loop only. Destroying it closes what has not got through.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "core/fd.h"
#include "transport/auth_key.h"
#include "transport/transport.h"

namespace forebay {

class Arrivals {
 public:
  static constexpr size_t kMost = 1024;

  Arrivals(Loop& loop, AuthKeyRef key, Duration limit, Transport::Accept& accept);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;

  void add(Fd socket, Peer peer);
  size_t waiting() const { return arrivals_.size(); }

 private:
  class Arrival;
  void through(uint64_t number, std::unique_ptr<Connection> connection);
  void refuse(uint64_t number, const Error& why);
  void forget(uint64_t number);

  Loop& loop_;
  const AuthKeyRef key_;
  const Duration limit_;
  Transport::Accept& accept_;
  std::unordered_map<uint64_t, std::shared_ptr<Arrival>> arrivals_;
  uint64_t next_ = 0;
};

}  // namespace forebay
