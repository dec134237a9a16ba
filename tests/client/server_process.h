// ServerProcess: a real server over a MemoryStore, or over what make_store makes, in a process of
// its own that ends with the test's. Tests only. Make it while the test has one thread: a process
// that was forked then, and does nothing else, forks each life of the server. (What is forked from
// a process with threads may find a lock of the sanitizer's allocator taken for good.)
#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
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
    int ends[2];
    FOREBAY_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    starter_ = fork_child();
    if (starter_ == 0) {
      ::close(ends[0]);
      start_servers(ends[1]);
    }
    ::close(ends[1]);
    orders_ = ends[0];
    restart();
  }
  ~ServerProcess() {
    order(kEnd);
    ::close(orders_);
    ::waitpid(starter_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;

  // A crash, and another life.
  void restart() { pid_ = order(kRestart); }
  const std::string& directory() const { return dir_.path(); }
  pid_t pid() const { return pid_; }

 private:
  static std::unique_ptr<Store> make_memory(const std::string&, CounterSet&) {
    return std::make_unique<MemoryStore>();
  }
  // What the starter is told; it answers with the server's process.
  static constexpr char kRestart = 'r', kEnd = 'e';
  pid_t order(char what) const {
    FOREBAY_ASSERT(::write(orders_, &what, 1) == 1);
    pid_t server = 0;
    FOREBAY_ASSERT(::read(orders_, &server, sizeof server) == sizeof server,
                   "the server did not start");
    return server;
  }
  static pid_t fork_child() {
    const pid_t child = ::fork();
    FOREBAY_ASSERT(child >= 0);
    if (child == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
  }
  [[noreturn]] void start_servers(int orders) {
    pid_t server = 0;
    for (char what; ::read(orders, &what, 1) == 1;) {
      if (server != 0) {
        ::kill(server, SIGKILL);
        ::waitpid(server, nullptr, 0);
      }
      server = what == kRestart ? start() : 0;
      if (server < 0 || ::write(orders, &server, sizeof server) != sizeof server) break;
    }
    ::_exit(0);
  }
  // As soon as it serves; -1: it did not come so far.
  pid_t start() {
    int ready[2];
    FOREBAY_ASSERT(::pipe(ready) == 0);
    const pid_t server = fork_child();
    if (server == 0) serve(ready[1]);
    ::close(ready[1]);
    char byte;
    const bool serves = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    return serves ? server : -1;
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
  pid_t starter_ = 0, pid_ = 0;
  int orders_ = -1;
};

}  // namespace forebay
