// RestartingServer: a real server over a directory, in a process of its own that is killed and
// started again at random moments, by a process that does nothing else. Tests only. Make it while
// the test has one thread.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <random>
#include <thread>

#include "client/remote_store.h"
#include "core/log.h"
#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/server.h"
#include "store/posix.h"
#include "transport/socket_transport.h"

namespace forebay {

#ifdef __SANITIZE_THREAD__
inline constexpr unsigned kSlowness = 20;
#else
inline constexpr unsigned kSlowness = 1;
#endif

class RestartingServer {
 public:
  struct Options {
    uint64_t seed = 0;
    unsigned least_ms = 5 * kSlowness, most_ms = 60 * kSlowness;  // between two kills
    bool sync = false;
    uint64_t compact_at = 64 << 10;  // so that it happens
    unsigned workers = 2;
  };
  explicit RestartingServer(Options options)
      : options_(options), address_{Address::Kind::unix_socket, dir_ / "socket", 0} {
    for (const char* name : {"data", "state"}) {
      FOREBAY_ASSERT(::mkdir((dir_ / name).c_str(), 0700) == 0);
    }
    void* const shared =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FOREBAY_ASSERT(shared != MAP_FAILED);
    shared_ = new (shared) Shared;
    pid_ = ::fork();
    FOREBAY_ASSERT(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      kill_and_restart();
    }
  }
  ~RestartingServer() {
    ::kill(pid_, SIGKILL);  // and with it the server
    ::waitpid(pid_, nullptr, 0);
    ::munmap(shared_, sizeof *shared_);
  }
  RestartingServer(const RestartingServer&) = delete;

  void calm() { shared_->calm = true; }  // kills no more
  unsigned kills() const { return shared_->kills; }
  std::string data() const { return dir_ / "data"; }

  Result<std::unique_ptr<RemoteStore>> connect() const {
    RemoteOptions options;
    options.address = [a = address_]() -> Result<Address> { return a; };
    options.export_name = "data";
    RemoteRuntime r;
    r.make_loop = [] { return std::make_unique<EpollLoop>(); };
    r.make_transport = [](Loop&) {
      return std::make_unique<SocketTransport>(SocketOptions{.shared_area = 4_MiB});
    };
    for (int tries = 0;; ++tries) {
      auto store = RemoteStore::connect(options, r);
      if (store || tries == 500) return store;
      ::usleep(10'000);
    }
  }

 private:
  struct Shared {
    std::atomic<bool> calm{false};
    std::atomic<unsigned> kills{0};
    std::atomic<unsigned> lives{0};  // that got so far as to listen
  };

  [[noreturn]] void kill_and_restart() {
    std::mt19937_64 random(options_.seed);
    unsigned known = 0;
    for (;;) {
      const pid_t server = ::fork();
      FOREBAY_ASSERT(server >= 0);
      if (server == 0) serve();
      // Mostly when it is up: else a slow machine would see nothing done.
      if (random() % 8 != 0) {
        while (shared_->lives == known) ::usleep(1000);
      }
      known = shared_->lives;
      const auto span = options_.most_ms - options_.least_ms + 1;
      ::usleep(1000 * static_cast<unsigned>(options_.least_ms + random() % span));
      while (shared_->calm) ::usleep(10'000);
      ::kill(server, SIGKILL);
      ::waitpid(server, nullptr, 0);
      ++shared_->kills;
    }
  }

  // A change of identity takes PR_SET_PDEATHSIG away.
  static void end_with(pid_t parent) {
    std::thread([parent] {
      while (::getppid() == parent) ::usleep(20'000);
      ::_exit(1);
    }).detach();
  }

  [[noreturn]] void serve() {
    end_with(::getppid());
    EpollLoop lobby;
    std::vector<std::unique_ptr<EpollLoop>> loops;
    std::vector<Loop*> workers;
    for (unsigned i = 0; i < options_.workers; ++i) {
      loops.push_back(std::make_unique<EpollLoop>());
      workers.push_back(loops.back().get());
    }
    SocketTransport transport;
    CounterSet counters;
    Server server({}, lobby, workers, counters);
    PosixOptions posix;
    posix.directory = dir_ / "data";
    posix.key_file = dir_ / "key";
    posix.export_id = 1;
    ExportOptions exported;
    exported.name = "data";
    exported.state = {dir_ / "state", options_.sync, options_.compact_at};
    auto store = PosixStore::open(std::move(posix), counters);
    FOREBAY_ASSERT(store.has_value(), store.error().message());
    auto added = server.add_export(exported, std::move(*store));
    FOREBAY_ASSERT(added.has_value(), added.error().message());
    const auto listener =
        transport.listen(address_, lobby, [&](auto c) { server.accept(std::move(c)); }).value();
    ++shared_->lives;
    std::vector<std::unique_ptr<LoopThread>> threads;
    for (const auto& loop : loops) threads.push_back(std::make_unique<LoopThread>(*loop, "worker"));
    for (;;) lobby.run_one(Duration::max());
  }

  const Options options_;
  TempDir dir_;
  Address address_;
  Shared* shared_;
  pid_t pid_;
};

}  // namespace forebay
