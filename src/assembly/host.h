// ServerHost: a whole server in this process, from its configuration: run directory, Stores, loops
// and their threads, listeners, and the Server that they serve. forebayd is this and signals.
//
// Threads: one for the lobby, which accepts and answers control requests, and one per worker, which
// sessions live on. Start, drain and destroy it from one thread, which is none of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "assembly/build.h"
#include "assembly/claim.h"
#include "assembly/run_dir.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/server.h"
#include "transport/socket_transport.h"

namespace forebay {

class ServerHost {
 public:
  // Returns when the server is published and can be reached. `on_stop_request` runs on the lobby's
  // thread when somebody asks by `forebay stop`. An error says what is wrong; nothing is left
  // behind.
  static Result<std::unique_ptr<ServerHost>> start(const Config& config,
                                                   std::function<void()> on_stop_request);
  ~ServerHost();  // after drain(), or at once: requests under way are then dropped
  ServerHost(const ServerHost&) = delete;

  const Published& published() const { return published_; }

  // Begins to stop: no new sessions, requests under way are finished, at most `most` long; then
  // `done` runs on the lobby's thread.
  void drain(Duration most, std::function<void()> done);

  // For a process that ends at once, without destroying this: takes back what is published.
  void abandon() { run_dir_.withdraw(); }

 private:
  explicit ServerHost(RunDir run_dir) : run_dir_(std::move(run_dir)) {}
  Result<void> build(const Config& config, std::function<void()> on_stop_request);
  Result<void> listen(const Config& config);
  void start_threads();

  // In the order in which they are built; what comes later goes first.
  RunDir run_dir_;
  std::optional<Claims> claims_;
  Surroundings around_;
  Published published_;
  std::unique_ptr<EpollLoop> lobby_ = std::make_unique<EpollLoop>();
  std::vector<std::unique_ptr<EpollLoop>> workers_;
  std::unique_ptr<SocketTransport> transport_;
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<LoopThread>> threads_;
};

}  // namespace forebay
