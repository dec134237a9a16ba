// Several simulated servers over one file system, each file with one home, and clients that reach
// one server each. What a server keeps beside the file system outlives it.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/remote_store.h"
#include "core/testing.h"
#include "plan/homes.h"
#include "server/server.h"
#include "store/memory.h"
#include "transport/sim_transport.h"

namespace forebay::sim {

using namespace std::chrono_literals;

// The file system that all servers have: what one server's end leaves to the others.
class Mount final : public Store {
 public:
  struct Held {  // calls of this kind wait
    Op op;
    std::vector<Task> calls;
  };
  using HeldRef = std::unique_ptr<Held>;
  Mount(Store& disk, HeldRef& held) : disk_(disk), held_(held) {}
  void submit(Request&& request, Completion&& done) override {
    if (!held_ || held_->op != request.op) {
      return disk_.submit(std::move(request), std::move(done));
    }
    held_->calls.push_back([this, request = std::move(request), done = std::move(done)]() mutable {
      disk_.submit(std::move(request), std::move(done));
    });
  }
  Result<void> admits(const Request& request) override { return disk_.admits(request); }
  std::string_view identity(const Handle& handle) const override { return disk_.identity(handle); }
  Result<Handle> root() override { return disk_.root(); }

 private:
  Store& disk_;
  HeldRef& held_;
};

struct Setting {
  When behind = When::never;
  std::vector<std::string> servers = {"a", "b", "c"};
  uint64_t pool = 1_MiB, chunk = 16_KiB;
};

class Cluster {
 public:
  explicit Cluster(uint64_t seed, Setting setting = {})
      : random(seed), loop(seed + 1), network(loop, seed + 2), setting_(std::move(setting)) {
    for (const std::string& name : setting_.servers) start(name, setting_.servers);
  }
  ~Cluster() {
    clients_.clear();
    for (auto& [name, host] : hosts_) host.listener.reset();
    hosts_.clear();
  }

  void start(const std::string& name, std::vector<std::string> servers, Store* store = nullptr) {
    Host& host = hosts_[name];
    host.transport = network.transport(name);
    ServerOptions options;
    options.name = name;
    options.boot = ++boots_;
    options.cluster = cluster(name, std::move(servers));
    host.server = std::make_unique<Server>(options, loop, std::vector<Loop*>{&loop}, host.counters);
    ExportOptions exported;
    exported.name = "main";
    exported.pool = setting_.pool;
    exported.chunk = setting_.chunk;
    exported.write_behind.when = setting_.behind;
    const std::string kept = kept_.path() + "/" + name;
    std::filesystem::create_directories(kept);
    exported.state.folder = kept;
    exported.lock_marker = kept + "/locks";
    exported.lock_grace = 10s;
    exported.lease_marker = kept + "/leases";
    auto added = host.server->add_export(exported,
                                         std::make_unique<Mount>(store ? *store : disk, host.held));
    FOREBAY_ASSERT(added.has_value());
    host.listener =
        host.transport
            ->listen({Address::Kind::simulated, name, 0}, loop,
                     [&host](std::unique_ptr<Connection> c) { host.server->accept(std::move(c)); })
            .value();
  }
  // The file system does not answer this server, until it does.
  void hold(const std::string& name, Op op) {
    hosts_[name].held = std::make_unique<Mount::Held>(Mount::Held{op, {}});
  }
  void release(const std::string& name) {
    const Mount::HeldRef held = std::move(hosts_[name].held);
    for (Task& call : held->calls) call();
  }
  void kill(const std::string& name) {
    network.kill(name);
    hosts_[name].listener.reset();
    hosts_[name].server.reset();
    hosts_[name].held.reset();  // its calls have not happened, and never will
  }

  // A client that knows this server only.
  RemoteStore& client(const std::string& server) {
    auto& client = clients_[server];
    // One of them shares memory with its server.
    const uint64_t area = server == "b" ? 256_KiB : 0;
    if (!client) client = connect(server, network.transport("client of " + server, area), {});
    return *client;
  }
  std::unique_ptr<RemoteStore> connect(const std::string& server,
                                       std::unique_ptr<Transport> transport,
                                       std::shared_ptr<const RelayIdentity> relay) {
    RemoteOptions options;
    options.address = [server]() -> Result<Address> {
      return Address{Address::Kind::simulated, server, 0};
    };
    options.export_name = "main";
    options.retry_for = relay ? 2s : 10min;  // a server that ends waits for the others
    options.connect_timeout = 1s;
    options.relay = std::move(relay);
    RemoteRuntime runtime;
    runtime.loop = &loop;
    runtime.make_transport = [kept = std::make_shared<std::unique_ptr<Transport>>(
                                  std::move(transport))](Loop&) { return std::move(*kept); };
    return RemoteStore::connect(std::move(options), std::move(runtime)).value();
  }
  static Peer a_server() {
    Peer peer;
    peer.caller = this_process_caller();
    peer.may_speak_for_others = true;
    peer.where = "another server";
    peer.proof = Peer::Proof::server;
    return peer;
  }

  std::string any_server() { return setting_.servers[random() % setting_.servers.size()]; }
  std::string home_of(const Handle& file) const {
    const plan::Homes homes(setting_.servers);
    return homes.names()[homes.of(disk.identity(file))];
  }
  std::string status(const std::string& server) { return hosts_[server].server->status(); }

  std::mt19937_64 random;
  SimLoop loop;
  SimNetwork network;
  MemoryStore disk;

 private:
  struct Host {
    std::unique_ptr<Transport> transport;
    CounterSet counters;
    Mount::HeldRef held;
    std::unique_ptr<Server> server;
    std::unique_ptr<Listener> listener;
  };

  std::shared_ptr<const ClusterOptions> cluster(const std::string& self,
                                                std::vector<std::string> servers) {
    auto options = std::make_shared<ClusterOptions>();
    options->self = self;
    options->servers = servers;
    options->reach = [this, self, servers](size_t other, const std::string&, const Handle& root,
                                           Loop&) -> Result<std::unique_ptr<Store>> {
      return std::unique_ptr<Store>(
          connect(servers[other], network.transport(self, a_server()),
                  std::make_shared<const RelayIdentity>(
                      RelayIdentity{self, servers[other], plan::Homes(servers).text(), root})));
    };
    return options;
  }

  const Setting setting_;
  TempDir kept_;
  uint64_t boots_ = 0;
  std::map<std::string, Host> hosts_;
  std::map<std::string, std::unique_ptr<RemoteStore>> clients_;
};

struct OpenFile {
  Handle handle;
  Right right;
};

// Calls as a program makes them.
class Program {
 public:
  explicit Program(RemoteStore& store) : store_(store) {}

  Result<Reply> call(Op op, Handle handle, std::string name = {}) {
    Request r;
    r.op = op;
    r.handle = std::move(handle);
    r.name = std::move(name);
    return call(std::move(r));
  }
  Result<Reply> call(Request r) {
    r.caller = this_process_caller();
    return store_.call(std::move(r));
  }
  Handle root() { return store_.root().value(); }
  Result<OpenFile> create(const std::string& name, uint32_t flags = 0) {
    Request r;
    r.op = Op::create;
    r.handle = root();
    r.name = name;
    r.mode = 0644;
    r.access = Access::both;
    r.flags = flags;
    auto made = call(std::move(r));
    if (!made) return made.error();
    return OpenFile{made->handle, made->right};
  }
  Result<OpenFile> open(const Handle& handle) {
    Request r;
    r.op = Op::open;
    r.handle = handle;
    r.access = Access::both;
    auto made = call(std::move(r));
    if (!made) return made.error();
    return OpenFile{handle, made->right};
  }
  Request transfer(Op op, const OpenFile& file, uint64_t offset, std::string& bytes) {
    Request r;
    r.op = op;
    r.handle = file.handle;
    r.right = file.right;
    r.caller = this_process_caller();
    r.file = Extents(Extent{Offset(offset), Length(bytes.size())});
    r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
    return r;
  }
  Result<Reply> write(const OpenFile& file, uint64_t offset, std::string bytes) {
    return call(transfer(Op::write, file, offset, bytes));
  }
  Result<std::string> read(const OpenFile& file, uint64_t offset, uint64_t size) {
    std::string bytes(size, '?');
    auto got = call(transfer(Op::read, file, offset, bytes));
    if (!got) return got.error();
    bytes.resize(got->count);
    return bytes;
  }
  Result<Reply> close(const OpenFile& file, Op op = Op::close) {
    Request r;
    r.op = op;
    r.handle = file.handle;
    r.right = file.right;
    return call(std::move(r));
  }
  RemoteStore& store() { return store_; }

 private:
  RemoteStore& store_;
};

}  // namespace forebay::sim
