// Disk: the file system that outlives the simulated servers, and a witness of what was done to it.
//
// The fault model: a server that dies leaves each call that it had under way done or not done, and
// nothing happens afterwards; a call takes a random time, and happens at its begin or at its end.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "loop/sim_loop.h"
#include "store/memory.h"

namespace forebay::sim {

class Disk {
 public:
  explicit Disk(SimLoop& loop) : loop_(loop) {}

  // The store of one life of a server; its end is that server's death.
  std::unique_ptr<Store> mount();

  // From now on, the chance that a write does nothing and is ENOSPC.
  void fail_writes(double chance) { full_ = chance; }
  // The bytes of a file as they are on the disk.
  std::string content(const Handle& file, const Right& right, uint64_t length);

  // How often an operation that must not be repeated reached the file system, and how often it
  // succeeded there. Actors give each of them names of its own.
  struct Seen {
    int attempts = 0, successes = 0;
  };
  Seen seen(Op op, const std::string& name) const;

 private:
  class Mount;
  Result<Reply> apply(Request request);

  SimLoop& loop_;
  MemoryStore store_;
  double full_ = 0;
  std::map<std::pair<Op, std::string>, Seen> seen_;
};

}  // namespace forebay::sim
