#include "server/server.h"

#include "server/lobby.h"

namespace forebay {

struct Server::Impl : server::Lobby {
  using Lobby::Lobby;
};

Server::Server(ServerOptions options, Loop& lobby, std::vector<Loop*> workers, CounterSet& counters)
    : impl_(std::make_shared<Impl>(std::move(options), lobby, std::move(workers), counters)) {}

Server::~Server() = default;

Result<void> Server::add_export(ExportOptions options, std::unique_ptr<Store> store) {
  return impl_->add_export(std::move(options), std::move(store));
}

void Server::accept(std::unique_ptr<Connection> connection) {
  impl_->accept(std::move(connection));
}

void Server::stop(Duration most, Callback<void()> done) {
  impl_->stop(most, std::move(done));
}

void Server::on_stop_request(Callback<void()> callback) {
  impl_->on_stop_request = std::move(callback);
}

std::string Server::status() const {
  return impl_->status();
}

}  // namespace forebay
