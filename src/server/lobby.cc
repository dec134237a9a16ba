#include "server/lobby.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "core/log.h"
#include "server/guest.h"
#include "server/status.h"

namespace forebay::server {
namespace {

constexpr size_t kKeyBytes = 16;
constexpr size_t kMaxGuests = 4096;  // connections without a session; more are closed unheard

std::string random_bytes(size_t n) {
  std::string out(n, '\0');
  const ssize_t got = ::getrandom(out.data(), n, 0);
  FOREBAY_ASSERT(got == static_cast<ssize_t>(n), "getrandom");
  return out;
}

uint64_t random_boot() {
  uint64_t boot = 0;
  while (boot == 0) std::memcpy(&boot, random_bytes(sizeof boot).data(), sizeof boot);
  return boot;
}

// In a time that does not tell how much of it was right.
bool same_key(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

CallerRef with_job(const CallerRef& caller, const std::string& job) {
  Caller copy = *caller;
  copy.job = job;
  return std::make_shared<const Caller>(std::move(copy));
}

// Ours, or the client's if that is smaller. In whole pages: a client's shared memory is cut into
// chunks.
uint32_t chunk_for(const wire::Hello& hello, const Export& exported) {
  constexpr uint32_t kPage = 4_KiB;
  const auto ours = static_cast<uint32_t>(exported.pool.buffer_size());
  return hello.chunk == 0 ? ours : std::clamp(hello.chunk / kPage * kPage, kPage, ours);
}

}  // namespace

Lobby::Lobby(ServerOptions options, Loop& loop, std::vector<Loop*> workers, CounterSet& counters)
    : options_(std::make_shared<const ServerOptions>(std::move(options))),
      boot_(options_->boot ? options_->boot : random_boot()),
      loop_(loop),
      workers_(std::move(workers)),
      counters_(counters),
      started_(loop.now()),
      eager_left_(options_->eager_total) {
  FOREBAY_ASSERT(!workers_.empty());
  FOREBAY_ASSERT(options_->slots > 0);
}

Lobby::~Lobby() {
  guests_.clear();
  for (auto& [id, record] : sessions_) record.session->drop();
  sessions_.clear();
  for (const auto& exported : exports_) exported->drop_store();
}

Result<void> Lobby::add_export(ExportOptions options, std::unique_ptr<Store> store) {
  if (find_export(options.name) && !options.name.empty()) {
    return Error(EEXIST, fmt::format("two exports are named '{}'", options.name));
  }
  const bool relays = options_->cluster != nullptr;
  auto made = Export::make(std::move(options), std::move(store), counters_, boot_, relays);
  if (!made) return std::move(made).error();
  if (relays) {
    (*made)->relay =
        std::make_unique<Relay>(Relay::Parts{options_->cluster, (*made)->options.name,
                                             (*made)->root, &(*made)->store(), (*made)->leases});
    const auto ours = (*made)->state().forget_others(
        [&](const Handle& file) { return (*made)->lives_here(file); });
    if (!ours) {
      (*made)->drop_store();
      return Error(ours.error()).at(fmt::format("export '{}'", (*made)->options.name));
    }
  }
  (*made)->locks.begin(loop_.now(), boot_);
  (*made)->leases->begin(loop_.now());
  exports_.push_back(std::move(*made));
  return {};
}

void Lobby::accept(std::unique_ptr<Connection> connection) {
  if (guests_.size() >= kMaxGuests) {
    log::warn("{}: closed: too many connections without a session", connection->peer().where);
    return;
  }
  receive(std::move(connection));
}

Lobby::Guest& Lobby::receive(std::unique_ptr<Connection> connection) {
  const uint64_t number = next_guest_++;
  auto guest = std::make_unique<Guest>(*this, number, std::move(connection));
  Guest& here = *guests_.emplace(number, std::move(guest)).first->second;
  here.start();
  return here;
}

void Lobby::leave_guests(uint64_t number, wire::Hello hello) {
  const auto found = guests_.find(number);
  if (found == guests_.end()) return;  // it has hung up
  Guest& guest = *found->second;
  bool resumed = false;
  const Result<uint64_t> id = find_or_make(guest.peer(), hello, resumed);
  if (!id) return guest.refuse(id.error());
  auto connection = guest.take();
  guests_.erase(found);
  seat(std::move(connection), *id, resumed, std::move(hello));
}

// ---- Handshake ----

Result<void> Lobby::welcome_peer(const Peer& peer, const wire::Hello& hello) const {
  if (auto version = wire::negotiate(hello); !version) return std::move(version).error();
  if (stopping_) return Error(ESHUTDOWN, fmt::format("{} is stopping", options_->name));
  if (!hello.auth_method.empty()) {
    return Error(EPROTONOSUPPORT,
                 fmt::format("authentication '{}' is not known to this server", hello.auth_method));
  }
  if (!peer.caller) {
    return Error(EACCES,
                 fmt::format("nobody vouches for {}: a client on another node proves itself "
                             "by the server's key (client.key_file)",
                             peer.where));
  }
  const uint32_t own = ::geteuid();
  const bool control = hello.purpose == wire::Hello::Purpose::control;
  const bool welcome = peer.caller->uid == own || (control && peer.caller->uid == 0);
  if (options_->only_this_user && !welcome) {
    return Error(EACCES, fmt::format("this server is run by user {} and serves no other; you are "
                                     "user {}",
                                     own, peer.caller->uid));
  }
  return check_relay(peer, hello);
}

Result<void> Lobby::check_relay(const Peer& peer, const wire::Hello& hello) const {
  if (hello.relay.empty()) return {};
  if (peer.proof != Peer::Proof::server) {
    return Error(EPERM, "only a server that proves the key may relay requests of its clients");
  }
  const ClusterOptions* const cluster = options_->cluster.get();
  const std::string ours = cluster ? plan::Homes(cluster->servers).text() : std::string();
  if (hello.servers != ours) {
    return Error(EINVAL,
                 fmt::format("the lists of servers differ: here they are '{}', but for server "
                             "'{}' they are '{}'; give all the same [cluster] servers, and "
                             "start them again together",
                             ours, hello.relay, hello.servers));
  }
  if (hello.home != cluster->self) {
    return Error(EINVAL,
                 fmt::format("this is server '{}', but server '{}' takes it for '{}': check "
                             "the addresses in [cluster] servers",
                             cluster->self, hello.relay, hello.home));
  }
  return {};
}

Result<std::shared_ptr<Export>> Lobby::find_export(const std::string& name) const {
  for (const auto& exported : exports_) {
    if (exported->options.name == name || (name.empty() && exports_.size() == 1)) return exported;
  }
  std::string known;
  for (const auto& exported : exports_) known += fmt::format(" '{}'", exported->options.name);
  return Error(ENOENT, fmt::format("no export is named '{}'; there is{}", name,
                                   known.empty() ? " none" : known));
}

bool Lobby::may_resume(const Record& record, const Peer& peer, const wire::Hello& hello) const {
  return record.resumable && record.relayed == !hello.relay.empty() &&
         same_key(record.key, hello.session_key) && record.caller->same_identity(*peer.caller) &&
         (hello.export_name.empty() || record.info->export_name == hello.export_name);
}

Result<uint64_t> Lobby::find_or_make(const Peer& peer, const wire::Hello& hello, bool& resumed) {
  if (stopping_) return Error(ESHUTDOWN, fmt::format("{} is stopping", options_->name));
  const auto found = sessions_.find(hello.session);
  resumed = found != sessions_.end() && may_resume(found->second, peer, hello);
  if (resumed) return hello.session;
  auto version = wire::negotiate(hello);
  if (!version) return std::move(version).error();
  return make_session(peer, hello, *version);
}

Lobby::Count Lobby::count(uint32_t uid, bool resumable) const {
  Count n;
  for (const auto& [id, record] : sessions_) {
    if (record.resumable != resumable) continue;
    ++n.all;
    n.of_user += record.caller->uid == uid;
  }
  return n;
}

// 0: as many as there are.
unsigned Lobby::most_of_user() const {
  return options_->only_this_user ? 0 : options_->sessions_per_user;
}

Result<void> Lobby::room_for(const Peer& peer) const {
  const Count now = count(peer.caller->uid, true), ended = count(peer.caller->uid, false);
  if (now.all >= options_->sessions || ended.all / 2 >= options_->sessions) {
    return Error(EUSERS, fmt::format("{} serves {} sessions, and no more{}", options_->name,
                                     options_->sessions,
                                     now.all >= options_->sessions
                                         ? ""
                                         : "; too many that have ended wait for the back end"));
  }
  const unsigned most = most_of_user();
  if (most == 0 || (now.of_user < most && ended.of_user / 2 < most)) return {};
  return Error(EUSERS, fmt::format("user {} has {} sessions with {}, and may have no more "
                                   "(server.sessions_per_user)",
                                   peer.caller->uid, most, options_->name));
}

// One has ended. What it has opened is kept for its children only.
void Lobby::close_oldest_rights(uint32_t uid) {
  const Count ended = count(uid, false);
  const bool many = ended.all > options_->sessions;
  const bool many_of_user = most_of_user() != 0 && ended.of_user > most_of_user();
  if (!many && !many_of_user) return;
  Record* oldest = nullptr;
  for (auto& [id, record] : sessions_) {
    if (!record.keeps_rights || (!many && record.caller->uid != uid)) continue;
    if (!oldest || record.ended < oldest->ended) oldest = &record;
  }
  if (!oldest) return;
  oldest->keeps_rights = false;
  oldest->session->loop().post([session = oldest->session] { session->stop(); });
}

Result<uint64_t> Lobby::make_session(const Peer& peer, const wire::Hello& hello, uint16_t version) {
  auto exported = find_export(hello.export_name);
  if (!exported) return std::move(exported).error();
  if (auto room = room_for(peer); !room) return std::move(room).error();
  if (!hello.relay.empty() && hello.root != (*exported)->root) {
    return Error(EINVAL, fmt::format("export '{}' of server '{}' is not this server's: another "
                                     "directory, or another key of its handles (key_file)",
                                     (*exported)->options.name, hello.relay));
  }
  const uint64_t id = next_session_++;
  Record record;
  record.caller = with_job(peer.caller, hello.job);
  record.key = random_bytes(kKeyBytes);
  // A part of what is left, so that however many come, none has to go without.
  record.eager = static_cast<uint32_t>(
      std::min<uint64_t>(options_->eager_session, eager_left_ / options_->eager_shares));
  eager_left_ -= record.eager;
  record.relayed = !hello.relay.empty();
  record.info = std::make_shared<SessionInfo>();
  record.info->id = id;
  record.info->export_name = (*exported)->options.name;
  record.info->host = hello.host;
  record.info->program = hello.program;
  record.info->job = hello.job;
  record.info->pid = hello.pid;
  record.info->uid = peer.caller->uid;

  wire::Welcome welcome;
  welcome.version = version;
  welcome.boot = boot_;
  welcome.state = (*exported)->state().id();
  welcome.session = id;
  welcome.session_key = record.key;
  welcome.root = (*exported)->root;
  welcome.slots = options_->slots;
  welcome.eager_bytes = record.eager;
  welcome.eager_max = options_->eager_max;
  welcome.chunk = chunk_for(hello, **exported);
  welcome.max_list_bytes = (*exported)->pool.max_charge();
  welcome.grace_ms = static_cast<uint32_t>(options_->grace / std::chrono::milliseconds(1));

  Loop& worker = *workers_[next_worker_++ % workers_.size()];
  auto tell = [weak = weak_from_this(), &lobby = loop_, id](Session::Parts::News news) {
    lobby.post([weak, id, news] {
      if (const auto self = weak.lock()) self->hear(id, news);
    });
  };
  record.session = std::make_shared<Session>(
      Session::Parts{options_, *exported, worker, record.info, record.caller, std::move(welcome),
                     record.relayed, std::move(tell)});
  sessions_.emplace(id, std::move(record));
  return id;
}

// Gives the connection to its session, on that session's loop. A session that ends while the
// connection is on its way sends it back, and it gets a new one.
void Lobby::seat(std::unique_ptr<Connection> connection, uint64_t id, bool resumed,
                 wire::Hello hello) {
  Record& record = sessions_.at(id);
  record.where = connection->peer().where;
  Connection::move(std::move(connection), record.session->loop(),
                   [weak = weak_from_this(), &lobby = loop_, session = record.session, resumed,
                    said = std::make_unique<wire::Hello>(std::move(hello))](auto moved) mutable {
                     if (session->attach(moved, resumed)) return;
                     Connection::move(std::move(moved), lobby,
                                      [weak, said = std::move(said)](auto back) {
                                        if (const auto self = weak.lock())
                                          self->seat_again(std::move(back), std::move(*said));
                                      });
                   });
}

void Lobby::seat_again(std::unique_ptr<Connection> connection, wire::Hello hello) {
  bool resumed = false;
  const Result<uint64_t> id = find_or_make(connection->peer(), hello, resumed);
  if (!id) return receive(std::move(connection)).refuse(id.error());
  seat(std::move(connection), *id, resumed, std::move(hello));
}

void Lobby::hear(uint64_t id, Session::Parts::News news) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Record& record = found->second;
  if (std::exchange(record.resumable, false)) record.ended = ++ends_;
  using News = Session::Parts::News;
  record.keeps_rights = news == News::keeps_rights;
  if (news != News::ended) eager_left_ += std::exchange(record.eager, 0);
  if (news == News::keeps_rights) return close_oldest_rights(record.caller->uid);
  if (news != News::gone) return;
  sessions_.erase(found);
  stopped_if_empty();
}

// ---- Control, status, stop ----

Result<std::string> Lobby::control(const Peer& peer, const std::string& verb) {
  if (verb == "status") return status();
  if (verb != "stop") {
    return Error(EOPNOTSUPP, fmt::format("'{}' is not a control request: status, stop", verb));
  }
  if (peer.caller->uid != ::geteuid() && peer.caller->uid != 0) {
    return Error(EPERM, "only root and the user who runs the server may stop it");
  }
  loop_.post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->on_stop_request) self->on_stop_request();
  });
  return std::string("{\"stopping\": true}");
}

std::string Lobby::status() const {
  Status status{options_->name, boot_, loop_.now() - started_, stopping_, {}, {}};
  status.exports.assign(exports_.begin(), exports_.end());
  for (const auto& [id, record] : sessions_) status.sessions.push_back({record.info, record.where});
  return to_json(status);
}

void Lobby::stop(Duration most, Callback<void()> done) {
  FOREBAY_ASSERT(!stopped_, "stop() once");
  stopping_ = true;
  stopped_ = std::move(done);
  for (auto& [id, record] : sessions_) {
    record.session->loop().post([session = record.session] { session->stop(); });
  }
  stop_timer_ = loop_.after(most, [this] {
    stop_timer_ = 0;
    undrained_ = 0;  // no more waiting
    for (auto& [id, record] : sessions_) {
      record.session->loop().post([session = record.session] { session->stop_now(); });
    }
    stopped_if_drained();
  });
  loop_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->stopped_if_empty();
  });
}

void Lobby::stopped_if_empty() {
  if (!stopped_ || !sessions_.empty() || std::exchange(draining_, true)) return;
  if (stop_timer_ != 0) drain();
  stopped_if_drained();
}

// What was acknowledged to sessions that have ended before. Not from here, where no Store is
// called.
void Lobby::drain() {
  undrained_ = exports_.size();
  for (const auto& exported : exports_) {
    workers_.front()->post([weak = weak_from_this(), &lobby = loop_, exported] {
      if (weak.expired()) return;
      exported->store().drain([weak, &lobby] {
        lobby.post([weak] {
          const auto self = weak.lock();
          if (!self || self->undrained_ == 0) return;
          --self->undrained_;
          self->stopped_if_drained();
        });
      });
    });
  }
}

void Lobby::stopped_if_drained() {
  if (!stopped_ || !sessions_.empty() || undrained_ > 0) return;
  loop_.cancel(std::exchange(stop_timer_, 0));
  guests_.clear();
  Callback<void()> done = std::move(stopped_);
  stopped_ = nullptr;
  done();
}

}  // namespace forebay::server
