// World: one simulated run: a disk, the lives of a server, a network and its faults, all from one
// seed.
#pragma once

#include <memory>
#include <random>
#include <string>

#include "client/remote_store.h"
#include "disk.h"
#include "server/server.h"
#include "transport/sim_transport.h"

namespace forebay::sim {

// What may happen in a world. Chances are per fault, drawn every few milliseconds of virtual time.
struct Climate {
  const char* name;
  double cut = 0;                             // a connection is cut
  double silence = 0;                         // the server is unreachable for a while
  double stop = 0;                            // the server is stopped orderly, and started again
  double kill = 0;                            // the server is killed, and started again
  double cut_frames = 0;                      // per frame: the connection is cut within it
  Duration grace = std::chrono::seconds(30);  // how long the server keeps a lost session
  bool behind = false;                        // the export has write-behind
  double full = 0;                            // per write of the disk: it fails

  // Can the outcome of a request get lost? (Also if a goodbye can.)
  bool forgetful() const {
    return kill > 0 || grace < std::chrono::seconds(30) || (stop > 0 && cut > 0);
  }
};

class World {
 public:
  World(uint64_t seed, const Climate& climate);
  ~World();

  // Half of the clients share memory with the server.
  std::unique_ptr<RemoteStore> connect(const std::string& host);
  // A read or write of `bytes`, which live until it is done; half of those of a client that shares
  // memory are in memory that it lends.
  void transfer(RemoteStore& store, Request&& request, std::string& bytes, Completion&& done);
  void begin_faults() {
    disk.fail_writes(climate.full);
    schedule();
  }
  void end_faults();

  uint64_t random(uint64_t below) { return random_() % below; }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  uint64_t tick() { return ++ticks_; }  // orders events

  SimLoop loop;
  Disk disk{loop};
  const Climate climate;
  int kills = 0, stops = 0;

 private:
  void schedule();
  void misfortune();
  void start_server();
  void stop_server();
  void kill_server();
  void restart_later();

  std::mt19937_64 random_;
  SimNetwork network_;
  std::unique_ptr<Transport> server_side_;
  CounterSet counters_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Listener> listener_;
  bool stopping_ = false, silent_ = false, faults_ = true;
  uint64_t lives_ = 0, ticks_ = 0;
};

}  // namespace forebay::sim
