#include "assembly/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "assembly/cluster.h"
#include "assembly/version.h"
#include "core/log.h"

namespace forebay {
namespace {

std::string path_of(const ExportConfig& config) {
  if (config.store != "posix") return {};
  std::error_code error;
  auto path = std::filesystem::canonical(config.path, error);
  return error ? std::string() : path.string();
}

}  // namespace

Result<std::unique_ptr<ServerHost>> ServerHost::start(const Config& config,
                                                      std::function<void()> on_stop_request) {
  if (config.exports.empty())
    return Error(EINVAL,
                 "nothing to serve: name a directory, or describe an [export.NAME] in the "
                 "configuration");
  auto run_dir =
      RunDir::claim(config.server.run_dir.empty() ? default_run_dir() : config.server.run_dir);
  if (!run_dir) return run_dir.error();
  std::unique_ptr<ServerHost> host(new ServerHost(std::move(*run_dir)));
  if (auto built = host->build(config, std::move(on_stop_request)); !built) return built.error();
  if (auto listening = host->listen(config); !listening) return listening.error();
  host->start_threads();
  if (auto published = host->run_dir_.publish(host->published_); !published)
    return published.error();
  return host;
}

Result<void> ServerHost::build(const Config& config, std::function<void()> on_stop_request) {
  const unsigned wanted =
      config.server.workers > 0 ? config.server.workers : std::thread::hardware_concurrency();
  std::vector<Loop*> loops;
  for (unsigned i = 0; i < std::max(1u, wanted); ++i) {
    workers_.push_back(std::make_unique<EpollLoop>());
    workers_.back()->share_core();
    loops.push_back(workers_.back().get());
  }
  auto key = load_key(config.server.key_file);
  if (!key) return std::move(key).error().at("server.key_file");
  transport_ = std::make_unique<SocketTransport>(SocketOptions{.key = *key});
  ServerOptions options = server_options(config.server);
  const Duration grace = options.grace;
  auto cluster = cluster_options(config, options.name, *key);
  if (!cluster) return cluster.error();
  options.cluster = *cluster;
  claims_.emplace(options.name, *cluster ? (*cluster)->servers : std::vector<std::string>());
  published_.name = options.name;
  published_.version = kVersionText;
  published_.pid = ::getpid();
  published_.boot = options.boot;
  server_ = std::make_unique<Server>(std::move(options), *lobby_, loops, around_.counters);
  server_->on_stop_request(std::move(on_stop_request));
  for (const ExportConfig& one : config.exports) {
    auto store = build_store(one, around_);
    if (!store) return store.error();
    if (auto taken = claims_->take(one); !taken) return taken;
    ExportOptions about = export_options(one);
    about.lock_marker = fmt::format("{}/locks.{}", run_dir_.path(), about.name);
    about.lock_grace = grace;
    about.lease_marker = fmt::format("{}/leases.{}", run_dir_.path(), about.name);
    about.lease_time = config.server.lease_time;
    auto state = state_options(config.server, one, run_dir_.path());
    if (!state) return state.error();
    about.state = std::move(*state);
    published_.exports.push_back({about.name, about.what, path_of(one)});
    auto added = server_->add_export(std::move(about), std::move(*store));
    if (!added) return added;
  }
  return {};
}

Result<void> ServerHost::listen(const Config& config) {
  auto addresses = listen_addresses(config.server, run_dir_.path());
  if (!addresses) return addresses.error();
  for (const Address& address : *addresses) {
    auto listener = transport_->listen(
        address, *lobby_,
        [this](std::unique_ptr<Connection> connection) { server_->accept(std::move(connection)); });
    if (!listener) return listener.error();
    published_.addresses.push_back((*listener)->address().text());
    listeners_.push_back(std::move(*listener));
  }
  return {};
}

void ServerHost::start_threads() {
  threads_.push_back(std::make_unique<LoopThread>(*lobby_, "lobby"));
  for (size_t i = 0; i < workers_.size(); ++i)
    threads_.push_back(std::make_unique<LoopThread>(*workers_[i], fmt::format("worker {}", i)));
}

void ServerHost::drain(Duration most, std::function<void()> done) {
  lobby_->post([this, most, done = std::move(done)]() mutable {
    listeners_.clear();
    server_->stop(most, std::move(done));
  });
}

ServerHost::~ServerHost() {
  threads_.clear();
  listeners_.clear();
  server_.reset();
}

}  // namespace forebay
