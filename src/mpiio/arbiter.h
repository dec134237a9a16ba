// Arbiter: a thread of rank 0 that keeps the shared state (attr/) of files that ranks of several
// nodes have open. It makes no MPI call: the one-sided memory of some MPIs waits until the target
// enters MPI, and a thread of ours that enters it is far slower than one that never does.
//
// It listens on TCP. Whoever connects proves that it knows the arbiter's key, random and of this
// life only, and so does the arbiter: challenge and response, the key is never sent
// (arbiter_wire.h). Frames from anybody else end the connection and nothing more. What a client
// holds and waits for goes when its connection does.
//
// Files: open_file() makes one, with all values 0 and no locks; close_file() forgets it, and later
// clients of its invitation are refused (ENOENT). Those that are connected keep what they have.
//
// Threads: every public call from any thread. The thread of its own may run on every core that the
// process may use, whatever core its maker is bound to. Destroying the arbiter ends that thread at
// once and cuts its clients off, who see ECONNRESET.
#pragma once

#include <memory>

#include "core/clock.h"
#include "core/result.h"
#include "mpiio/invitation.h"

namespace forebay::mpiio {

class Arbiter {
 public:
  // Where it listens: for this machine, or for other nodes as well.
  enum class Reach { loopback, network };
  struct Options {
    Reach reach = Reach::network;
    Duration proof_within = std::chrono::seconds(10);  // or a connection is closed
  };

  static Result<std::unique_ptr<Arbiter>> start(const Options& options);
  static Result<std::unique_ptr<Arbiter>> start() { return start(Options()); }
  ~Arbiter();
  Arbiter(const Arbiter&) = delete;

  Invitation open_file();
  void close_file(const Invitation& invitation);

  size_t clients() const;  // connected and proven

 private:
  struct Impl;
  explicit Arbiter(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::mpiio
