// ServerProcess: a real server over a MemoryStore, or over what make_store makes, in a process of
// its own that ends with the test's. Tests only. Make and restart it while the test has one thread.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "client/remote_store.h"
#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "server/server.h"
#include "store/memory.h"
#include "transport/socket_transport.h"

namespace forebay {

class ServerProcess {
 public:
  using MakeStore = std::unique_ptr<Store> (*)(const std::string& directory, CounterSet& counters);
  explicit ServerProcess(ServerOptions options = {}, ExportOptions exported = {},
                         MakeStore make_store = make_memory)
      : options_(std::move(options)),
        exported_(std::move(exported)),
        make_store_(make_store),
        address_{Address::Kind::unix_socket, dir_ / "socket", 0} {
    start();
  }
  ~ServerProcess() { kill(); }
  ServerProcess(const ServerProcess&) = delete;

  // A crash, and another life.
  void restart() {
    kill();
    start();
  }
  const std::string& directory() const { return dir_.path(); }
  pid_t pid() const { return pid_; }

 private:
  static std::unique_ptr<Store> make_memory(const std::string&, CounterSet&) {
    return std::make_unique<MemoryStore>();
  }
  void start() {
    int ready[2];
    FOREBAY_ASSERT(::pipe(ready) == 0);
    pid_ = ::fork();
    FOREBAY_ASSERT(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      serve(ready[1]);
    }
    ::close(ready[1]);
    char byte;
    FOREBAY_ASSERT(::read(ready[0], &byte, 1) == 1, "the server did not start");
    ::close(ready[0]);
  }
  void kill() const {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 public:
  const Address& address() const { return address_; }

  static RemoteRuntime runtime(uint64_t lent = 0) {
    RemoteRuntime r;
    r.lent = lent;
    r.make_loop = [] {
      auto loop = std::make_unique<EpollLoop>();
      loop->guard();
      return loop;
    };
    r.make_transport = [](Loop&) {
      return std::make_unique<SocketTransport>(SocketOptions{.shared_area = 4_MiB});
    };
    return r;
  }
  Result<std::unique_ptr<RemoteStore>> connect(uint64_t lent = 0) const {
    return connect(runtime(lent));
  }
  // Without shared memory, as from another node.
  Result<std::unique_ptr<RemoteStore>> connect_from_afar() const {
    RemoteRuntime far = runtime();
    far.make_transport = [](Loop&) { return std::make_unique<SocketTransport>(SocketOptions{}); };
    return connect(far);
  }

 private:
  Result<std::unique_ptr<RemoteStore>> connect(const RemoteRuntime& runtime) const {
    RemoteOptions options;
    options.address = [a = address_]() -> Result<Address> { return a; };
    options.export_name = "data";
    return RemoteStore::connect(std::move(options), runtime);
  }
  [[noreturn]] void serve(int ready) {
    EpollLoop loop;
    SocketTransport transport;
    CounterSet counters;
    Server server(options_, loop, {&loop}, counters);
    exported_.name = "data";
    server.add_export(exported_, make_store_(dir_.path(), counters)).value();
    const auto listener =
        transport.listen(address_, loop, [&](auto c) { server.accept(std::move(c)); }).value();
    FOREBAY_ASSERT(::write(ready, "!", 1) == 1);
    for (;;) loop.run_one(Duration::max());
  }

  ServerOptions options_;
  ExportOptions exported_;
  const MakeStore make_store_;
  TempDir dir_;
  Address address_;
  pid_t pid_;
};

}  // namespace forebay
