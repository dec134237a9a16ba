// Stores behind a server: the client's RemoteStore, a real Server, and the store of another subject
// below, which is where faults are injected. Once in virtual time on a simulated network, whole in
// one thread; once over a Unix socket with the server on a thread of its own.
//
// Neither lacks anything that the store below has, but for threads in the simulation. Sizes are
// small, so that cases of a few kilobytes meet every way that data takes: eager, pulled and pushed
// in chunks, with its list pulled; and, with write-behind, that some writes find no memory.
#include "client/remote_store.h"

#include <deque>

#include "conformance.h"
#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/server.h"
#include "transport/sim_transport.h"
#include "transport/socket_transport.h"

namespace forebay::conformance {

namespace {

// A server owns its stores; this one stays with the fixture below.
class Borrowed final : public Store {
 public:
  explicit Borrowed(Store& store) : store_(store) {}
  void submit(Request&& request, Completion&& done) override {
    store_.submit(std::move(request), std::move(done));
  }
  Result<Handle> root() override { return store_.root(); }
  Result<void> admits(const Request& request) override { return store_.admits(request); }
  std::string_view identity(const Handle& handle) const override { return store_.identity(handle); }
  unsigned concurrency() const override { return store_.concurrency(); }

 private:
  Store& store_;
};

struct Way {
  uint64_t shared_area = 0;  // of the client, on a Unix socket
  bool behind = false;
  Pipeline pipeline = Pipeline::parallel;
  uint64_t sieve_call = 0;  // SieveOptions::call
};

std::unique_ptr<Server> make_server(Loop& loop, CounterSet& counters, Store& store, uint64_t chunk,
                                    Way way,
                                    std::shared_ptr<const ClusterOptions> cluster = nullptr) {
  ServerOptions options;
  options.cluster = std::move(cluster);
  options.slots = 8;
  options.eager_session = 2048;
  options.eager_max = 512;
  auto server = std::make_unique<Server>(options, loop, std::vector<Loop*>{&loop}, counters);
  ExportOptions exported;
  exported.name = "data";
  exported.pool = 64 * chunk;
  exported.chunk = chunk;
  exported.pipeline = way.pipeline;
  exported.sieve = {.writes = way.sieve_call > 0 ? When::always : When::never,
                    .call = way.sieve_call};
  if (way.behind) {
    exported.write_behind = {
        .when = When::always, .memory = 64_KiB, .age = std::chrono::milliseconds(5)};
  }
  FOREBAY_ASSERT(server->add_export(exported, std::make_unique<Borrowed>(store)).has_value());
  return server;
}

std::unique_ptr<RemoteStore> connect_to(const Address& address, RemoteRuntime runtime,
                                        std::shared_ptr<const RelayIdentity> relay = nullptr) {
  RemoteOptions options;
  options.relay = std::move(relay);
  options.address = [address]() -> Result<Address> { return address; };
  options.export_name = "data";
  auto store = RemoteStore::connect(std::move(options), std::move(runtime));
  FOREBAY_ASSERT(store.has_value(), store.error().message());
  return std::move(*store);
}

template <Way way>
class SimFixture final : public Fixture {
 public:
  explicit SimFixture(std::unique_ptr<Fixture> below)
      : below_(std::move(below)),
        server_(make_server(loop_, counters_, below_->store(), 4_KiB, way)) {
    const Address address{Address::Kind::simulated, "server", 0};
    listener_ =
        server_side_
            ->listen(address, loop_,
                     [this](std::unique_ptr<Connection> c) { server_->accept(std::move(c)); })
            .value();
    RemoteRuntime runtime;
    runtime.loop = &loop_;
    runtime.make_transport = [this](Loop&) {
      // As root on a Unix socket, so that cases about other users run whoever runs the test.
      Peer identity;
      identity.caller = this_process_caller();
      identity.may_speak_for_others = true;
      identity.where = "sim client";
      return network_.transport("client", std::move(identity));
    };
    store_ = connect_to(address, std::move(runtime));
  }
  Store& store() override { return *store_; }
  std::optional<size_t> open_rights() override { return below_->open_rights(); }

 private:
  // In the order in which they are built; what comes later goes first.
  std::unique_ptr<Fixture> below_;
  SimLoop loop_{1};  // one seed will do: chance is the business of tests/simulation
  SimNetwork network_{loop_, 2};
  std::unique_ptr<Transport> server_side_ = network_.transport("server");
  CounterSet counters_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Store> store_;
};

// Two servers of the same store, and a client of one of them: half of the files live at the other.
template <Way way>
class RelayFixture final : public Fixture {
 public:
  explicit RelayFixture(std::unique_ptr<Fixture> below) : below_(std::move(below)) {
    for (const char* name : {"a", "b"}) {
      Host& host = hosts_.emplace_back();
      host.side = network_.transport(name);
      host.server =
          make_server(loop_, host.counters, below_->store(), 4_KiB, way, cluster_of(name));
      host.listener = host.side
                          ->listen({Address::Kind::simulated, name, 0}, loop_,
                                   [&host](std::unique_ptr<Connection> c) {
                                     host.server->accept(std::move(c));
                                   })
                          .value();
    }
    store_ = reach("a", nullptr);
  }
  Store& store() override { return *store_; }
  std::optional<size_t> open_rights() override { return below_->open_rights(); }

 private:
  struct Host {
    std::unique_ptr<Transport> side;
    CounterSet counters;
    std::unique_ptr<Server> server;
    std::unique_ptr<Listener> listener;
  };

  std::unique_ptr<RemoteStore> reach(const std::string& server,
                                     std::shared_ptr<const RelayIdentity> relay) {
    RemoteRuntime runtime;
    runtime.loop = &loop_;
    runtime.make_transport = [this](Loop&) {
      Peer identity;
      identity.caller = this_process_caller();
      identity.may_speak_for_others = true;
      identity.where = "sim";
      identity.proof = Peer::Proof::server;
      return network_.transport("client", std::move(identity));
    };
    return connect_to({Address::Kind::simulated, server, 0}, std::move(runtime), std::move(relay));
  }
  std::shared_ptr<const ClusterOptions> cluster_of(const std::string& self) {
    auto cluster = std::make_shared<ClusterOptions>();
    cluster->self = self;
    cluster->servers = {"a", "b"};
    cluster->reach = [this, self](size_t other, const std::string&, const Handle& root,
                                  Loop&) -> Result<std::unique_ptr<Store>> {
      const std::string home = other == 0 ? "a" : "b";
      return std::unique_ptr<Store>(reach(
          home, std::make_shared<const RelayIdentity>(RelayIdentity{self, home, "a,b", root})));
    };
    return cluster;
  }

  // As above.
  std::unique_ptr<Fixture> below_;
  SimLoop loop_{1};
  SimNetwork network_{loop_, 2};
  std::deque<Host> hosts_;
  std::unique_ptr<Store> store_;
};

template <Way way>
class UnixFixture final : public Fixture {
 public:
  explicit UnixFixture(std::unique_ptr<Fixture> below)
      : below_(std::move(below)),
        server_(make_server(loop_, counters_, below_->store(), 64_KiB, way)) {
    const Address address{Address::Kind::unix_socket, temp_ / "socket", 0};
    listener_ =
        transport_
            .listen(address, loop_,
                    [this](std::unique_ptr<Connection> c) { server_->accept(std::move(c)); })
            .value();
    thread_ = std::make_unique<LoopThread>(loop_);
    RemoteRuntime runtime;
    runtime.make_loop = [] { return std::make_unique<EpollLoop>(); };
    runtime.make_transport = [](Loop&) {
      return std::make_unique<SocketTransport>(SocketOptions{.shared_area = way.shared_area});
    };
    store_ = connect_to(address, std::move(runtime));
  }
  Store& store() override { return *store_; }
  std::optional<size_t> open_rights() override { return below_->open_rights(); }

 private:
  // As above.
  std::unique_ptr<Fixture> below_;
  TempDir temp_;
  EpollLoop loop_;
  SocketTransport transport_;
  CounterSet counters_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<Store> store_;
};

template <class F>
Subject served(Subject subject, std::string name) {
  subject.name = std::move(name);
  subject.make = [make = subject.make](const Wrap& wrap) {
    return std::make_unique<F>(make(wrap));
  };
  return subject;
}

}  // namespace

std::vector<Subject> remote_subjects() {
  constexpr Way kPlain{}, kBehind{.behind = true}, kShared{.shared_area = 256_KiB};
  constexpr Way kNone{.pipeline = Pipeline::none}, kSerial{.pipeline = Pipeline::serial};
  constexpr Way kSieved{.sieve_call = 1_MiB};  // whatever is scattered goes whole
  constexpr Way kSievedBehind{.behind = true, .sieve_call = 1_MiB};
  const Subject memory = memory_subjects().front(), posix = posix_subjects().front();
  Subject remote = served<SimFixture<kPlain>>(memory, "remote");
  Subject none = served<SimFixture<kNone>>(memory, "remote_none");
  Subject serial = served<SimFixture<kSerial>>(memory, "remote_serial");
  Subject behind = served<SimFixture<kBehind>>(memory, "remote_behind");
  Subject relay = served<RelayFixture<kPlain>>(memory, "relay");
  Subject relay_behind = served<RelayFixture<kBehind>>(memory, "relay_behind");
  Subject sieved = served<SimFixture<kSieved>>(memory, "remote_sieved");
  Subject sieved_behind = served<SimFixture<kSievedBehind>>(memory, "remote_sieved_behind");
  for (Subject* s :
       {&remote, &none, &serial, &behind, &sieved, &sieved_behind, &relay, &relay_behind}) {
    s->lacks[Feature::threads] = "a simulated loop and all that is on it run in one thread";
  }
  relay_behind.lacks[Feature::told] = "through another server a loss is told by commit and close";
  Subject sockets = served<UnixFixture<kPlain>>(posix, "remote_unix");
  Subject shared = served<UnixFixture<kShared>>(posix, "remote_shared");
  Subject late = served<UnixFixture<kBehind>>(posix, "remote_unix_behind");
  // Each run starts a server; `remote` and `posix` fail every call.
  for (Subject* s :
       {&none, &serial, &sieved, &sieved_behind, &sockets, &shared, &late, &relay_behind})
    s->every_call = 4;
  return {remote,  none,   serial, behind, sieved,      sieved_behind,
          sockets, shared, late,   relay,  relay_behind};
}

}  // namespace forebay::conformance
