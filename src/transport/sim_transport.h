// SimNetwork: connections between the hosts of a simulation, inside one process, on a SimLoop.
//
// The fault model, which whoever uses a Transport must survive; all of it is drawn from the seed:
//  - what is sent arrives in pieces cut at any byte, each after a random delay, in the order sent,
//    with other events in between;
//  - a connection is cut at any moment: what was not delivered, in either direction, is lost, even
//    if `sent` has run, even in the middle of a payload; both ends hear of it, at different times;
//  - a host is killed: its listeners vanish, its connections are cut, connects to it are refused
//    until it listens again;
//  - a host is partitioned: silence, nothing is delivered and no connect is answered; when it
//    heals, the connections that were silent are cut;
//  - the "kernel" takes at most `window` bytes per direction: the `sent` of more runs later.
// Not modelled: corrupted, repeated or reordered bytes, which sockets do not deliver either.
//
// A transport may share memory with the servers that it connects to, as one on a Unix socket does:
// each end has a mapping of its own, and sees at once what the other writes there. Frames travel as
// ever; the rings of the region are not used.
//
// One thread only: the SimLoop's. The network must outlive its transports, listeners and
// connections.
#pragma once

#include <memory>
#include <string>

#include "loop/sim_loop.h"
#include "transport/transport.h"

namespace forebay {

struct SimOptions {
  Duration delay_min = std::chrono::microseconds(5);
  Duration delay_max = std::chrono::microseconds(500);
  unsigned pieces_max = 4;    // what is sent at once arrives in at most so many pieces
  uint64_t window = 256_KiB;  // bytes per direction between send() and delivery
  double cut_chance = 0;      // per piece: the connection is cut when it arrives
};

class SimNetwork {
 public:
  SimNetwork(SimLoop& loop, uint64_t seed, SimOptions options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;

  // A host's view of the network. Addresses are "sim:name", and any host may listen on any name.
  // `identity` is what the other end sees as its peer(); by default this process' caller on host
  // `host`, speaking for itself only.
  // `shared_area`: as SocketOptions has it; 0: its connections share no memory.
  std::unique_ptr<Transport> transport(std::string host, uint64_t shared_area = 0);
  std::unique_ptr<Transport> transport(std::string host, Peer identity, uint64_t shared_area = 0);

  // Cuts one connection, at random; false if there is none.
  bool cut();
  // Cuts every connection of a host.
  void cut(const std::string& host);
  // The host dies. Whoever ran there is still to be destroyed by the caller.
  void kill(const std::string& host);
  void partition(const std::string& host);
  void heal(const std::string& host);

  void set_cut_chance(double chance);
  size_t connections() const;  // established and not cut

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace forebay
