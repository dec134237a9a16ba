#include "world.h"

#include <cstring>

namespace forebay::sim {

using namespace std::chrono_literals;

namespace {

// A few chunks, so that requests wait for each other.
constexpr uint64_t kArea = 16_KiB, kLent = 256_KiB;

const Address kServer{Address::Kind::simulated, "server", 0};

SimOptions network_options(const Climate& climate) {
  SimOptions o;
  o.window = 16_KiB;
  o.cut_chance = climate.cut_frames;
  return o;
}

}  // namespace

World::World(uint64_t seed, const Climate& c)
    : loop(seed),
      climate(c),
      random_(seed + 1),
      network_(loop, seed + 2, network_options(c)),
      server_side_(network_.transport("server")) {
  start_server();
}

World::~World() {
  listener_.reset();
  server_.reset();
}

std::unique_ptr<RemoteStore> World::connect(const std::string& host) {
  RemoteOptions options;
  options.address = []() -> Result<Address> { return kServer; };
  options.export_name = "data";
  options.connect_timeout = 200ms;
  options.retry_for = 10min;
  RemoteRuntime runtime;
  runtime.loop = &loop;
  const bool shares = random(2) == 0;
  if (shares) runtime.lent = kLent;
  runtime.make_transport = [this, host, area = shares ? kArea : 0](Loop&) {
    return network_.transport(host, area);
  };
  return RemoteStore::connect(std::move(options), std::move(runtime)).value();
}

void World::transfer(RemoteStore& store, Request&& request, std::string& bytes, Completion&& done) {
  std::byte* const lent = random(2) ? store.allocate(bytes.size()) : nullptr;
  if (!lent) {
    request.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
    return store.submit(std::move(request), std::move(done));
  }
  std::memcpy(lent, bytes.data(), bytes.size());
  request.memory = Memory::of(std::span(lent, bytes.size()));
  store.submit(std::move(request),
               [&store, &bytes, lent, done = std::move(done)](Result<Reply>&& result) mutable {
                 std::memcpy(bytes.data(), lent, bytes.size());
                 store.deallocate(lent);
                 done(std::move(result));
               });
}

// ---- The server's lives ----

void World::start_server() {
  ServerOptions options;
  options.boot = ++lives_;
  options.slots = 8;
  options.eager_session = 2048;
  options.eager_max = 512;
  options.grace = climate.grace;
  server_ = std::make_unique<Server>(options, loop, std::vector<Loop*>{&loop}, counters_);
  ExportOptions exported;
  exported.name = "data";
  exported.pool = 64_KiB;
  exported.chunk = 4_KiB;
  exported.in_flight = 2;
  if (climate.behind) {
    exported.write_behind = {.when = When::always, .memory = 32_KiB, .age = 5ms};
  }
  server_->add_export(exported, disk.mount()).value();
  listener_ = server_side_->listen(kServer, loop, [this](auto c) { server_->accept(std::move(c)); })
                  .value();
}

void World::stop_server() {
  ++stops;
  stopping_ = true;
  listener_.reset();
  server_->stop(2s, [this] {
    // From a task of its own: it calls us.
    loop.post([this] { server_.reset(), restart_later(); });
  });
}

void World::kill_server() {
  ++kills;
  stopping_ = true;
  network_.kill("server");
  listener_.reset();
  server_.reset();
  restart_later();
}

void World::restart_later() {
  loop.after(std::chrono::milliseconds(random(50)), [this] {
    start_server();
    stopping_ = false;
  });
}

// ---- Faults ----

void World::schedule() {
  loop.after(std::chrono::microseconds(500 + random(5000)), [this] {
    if (!faults_) return;
    misfortune();
    schedule();
  });
}

void World::misfortune() {
  if (chance(climate.cut)) network_.cut();
  if (!silent_ && chance(climate.silence)) {
    silent_ = true;
    network_.partition("server");
    loop.after(std::chrono::milliseconds(1 + random(300)), [this] {
      silent_ = false;
      network_.heal("server");
    });
  }
  if (stopping_) return;
  if (chance(climate.stop)) {
    stop_server();
  } else if (chance(climate.kill)) {
    kill_server();
  }
}

void World::end_faults() {
  faults_ = false;
  disk.fail_writes(0);
  network_.set_cut_chance(0);
}

}  // namespace forebay::sim
