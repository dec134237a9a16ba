#include "assembly/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/remote_store.h"
#include "plan/homes.h"
#include "transport/socket_transport.h"

namespace forebay {
namespace {

constexpr size_t kLongestName = 64;
// A peer whose machine or network died is noticed after so long.
constexpr Duration kDeadAfter = std::chrono::seconds(10);

bool good_name(std::string_view name) {
  const auto fine = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, fine);
}

Result<ClusterMember> member(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos || !good_name(name)) {
    return Error(EINVAL, fmt::format("cluster.servers: '{}' is not NAME=ADDRESS, as in "
                                     "'a=tcp:10.0.0.1:4711'",
                                     text));
  }
  auto address = Address::parse(text.substr(equals + 1));
  if (!address) return std::move(address).error().at("cluster.servers");
  if (address->kind != Address::Kind::tcp || address->port == 0) {
    return Error(EINVAL, fmt::format("cluster.servers: '{}': servers reach each other by "
                                     "tcp:HOST:PORT",
                                     text));
  }
  return ClusterMember{name, *address};
}

std::vector<std::string> names_of(const std::vector<ClusterMember>& members) {
  std::vector<std::string> names;
  for (const ClusterMember& m : members) names.push_back(m.name);
  return names;
}

Result<void> check_config(const Config& config, const std::vector<ClusterMember>& members,
                          const std::string& self, const AuthKeyRef& key) {
  const std::vector<std::string> names = names_of(members);
  if (std::ranges::find(names, self) == names.end()) {
    return Error(EINVAL, fmt::format("this server is called '{}' (server.name), which is none of "
                                     "cluster.servers: {}",
                                     self, plan::Homes(names).text()));
  }
  if (!key) {
    return Error(EINVAL,
                 "cluster.servers: servers prove themselves to each other by a key; set "
                 "server.key_file (`forebay key make FILE`)");
  }
  for (const ExportConfig& one : config.exports) {
    if (one.store == "posix") continue;
    return Error(EINVAL, fmt::format("export {}: a '{}' store is one server's own; with "
                                     "cluster.servers all serve the same directory",
                                     one.name, one.store));
  }
  return {};
}

RemoteOptions remote_options(const ClusterMember& peer, Duration patience) {
  RemoteOptions options;
  options.address = [address = peer.address]() -> Result<Address> { return address; };
  options.retry_for = patience;
  options.connect_timeout = std::min<Duration>(patience, std::chrono::seconds(5));
  options.program = "forebayd";
  return options;
}

}  // namespace

Result<std::vector<ClusterMember>> cluster_members(const ClusterConfig& config) {
  std::vector<ClusterMember> members;
  for (const std::string& text : config.servers) {
    auto one = member(text);
    if (!one) return one.error();
    const auto same = [&](const ClusterMember& m) { return m.name == one->name; };
    if (std::ranges::any_of(members, same)) {
      return Error(EINVAL, fmt::format("cluster.servers: two are called '{}'", one->name));
    }
    members.push_back(std::move(*one));
  }
  return members;
}

Result<std::shared_ptr<const ClusterOptions>> cluster_options(const Config& config,
                                                              const std::string& name,
                                                              const AuthKeyRef& key) {
  auto members = cluster_members(config.cluster);
  if (!members) return members.error();
  if (members->empty()) return std::shared_ptr<const ClusterOptions>();
  if (auto good = check_config(config, *members, name, key); !good) return good.error();
  auto out = std::make_shared<ClusterOptions>();
  out->self = name;
  out->servers = names_of(*members);
  out->reach = [members = *members, name, key, all = plan::Homes(out->servers).text(),
                patience = config.cluster.patience](size_t server, const std::string& export_name,
                                                    const Handle& root,
                                                    Loop& loop) -> Result<std::unique_ptr<Store>> {
    RemoteOptions options = remote_options(members[server], patience);
    options.export_name = export_name;
    options.relay =
        std::make_shared<const RelayIdentity>(RelayIdentity{name, members[server].name, all, root});
    RemoteRuntime runtime;
    runtime.loop = &loop;
    runtime.make_transport = [key](Loop&) {
      SocketOptions sockets;
      sockets.key = key;
      sockets.role = KeyRole::server;
      sockets.tcp_dead_after = kDeadAfter;
      return std::make_unique<SocketTransport>(sockets);
    };
    auto store = RemoteStore::connect(std::move(options), std::move(runtime));
    if (!store) return store.error();
    return std::unique_ptr<Store>(std::move(*store));
  };
  return std::shared_ptr<const ClusterOptions>(std::move(out));
}

}  // namespace forebay
