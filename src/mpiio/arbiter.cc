#include "mpiio/arbiter.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "attr/range_locks.h"
#include "attr/values.h"
#include "core/log.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "mpiio/arbiter_wire.h"
#include "mpiio/guest_thread.h"
#include "mpiio/own_addresses.h"
#include "transport/socket_transport.h"

namespace forebay::mpiio {

namespace {

using attr::RangeLocks;

// Connections that have proven nothing, beyond which new ones are closed at once. Ranks prove
// themselves within milliseconds, so this is many thousand of them at the same moment.
constexpr size_t kMostUnproven = 4096;
// What a client may leave unread; an answer is 40 bytes.
constexpr uint64_t kMostUnsent = 1_MiB;

struct File {
  attr::Values values;
  RangeLocks locks;
};

Result<uint64_t> apply(attr::Values& values, const Asked& asked) {
  const std::string name = std::to_string(static_cast<uint32_t>(asked.slot));
  // As in paper 4, a shared file pointer is made when it is first used.
  if (!values.get(name)) {
    if (auto made = values.create(name, 0); !made) return std::move(made).error();
  }
  switch (asked.call) {
    case Call::set:
      if (auto done = values.set(name, asked.a); !done) return std::move(done).error();
      return asked.a;
    case Call::fetch_and_add:
      return values.fetch_and_add(name, asked.a);
    case Call::compare_and_swap:
      return values.compare_and_swap(name, asked.a, asked.b);
    default:
      return values.get(name);
  }
}

}  // namespace

struct Arbiter::Impl {
  class Guest;

  explicit Impl(const Options& o)
      : options(o), transport({.tcp_dead_after = kDeadAfter, .peers_prove_themselves = true}) {}
  ~Impl();

  Result<void> listen();
  void accepted(std::unique_ptr<Connection> connection);
  std::shared_ptr<File> find(uint64_t file);
  void tell(const std::vector<RangeLocks::Ticket>& granted);

  const Options options;
  const Nonce key_bytes = make_nonce();
  const SealKey key{key_bytes};
  SocketTransport transport;
  EpollLoop loop;
  std::vector<std::string> hosts;

  // The thread's own.
  std::unique_ptr<Listener> listener;
  uint64_t last_guest = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Guest>> guests;

  std::atomic<size_t> proven{0};
  std::mutex mutex;  // guards which files there are; what is in them is the thread's
  uint64_t last_file = 0;
  std::unordered_map<uint64_t, std::shared_ptr<File>> files;

  std::optional<LoopThread> thread;
};

// One connection, on the arbiter's loop. It is the owner of its locks.
class Arbiter::Impl::Guest final : public ConnectionHandler {
 public:
  Guest(Impl& arbiter, uint64_t id, std::unique_ptr<Connection> connection)
      : arbiter_(arbiter), id_(id), connection_(std::move(connection)) {}
  ~Guest() override {
    arbiter_.loop.cancel(deadline_);
    if (file_) --arbiter_.proven;
  }

  void start() {
    deadline_ = arbiter_.loop.after(arbiter_.options.proof_within, [this] {
      connection_->close(Error(ETIMEDOUT, "a connection that proves nothing"));
    });
    connection_->start(*this);
  }
  void send(const Answer& answer) {
    connection_->send(encode(answer));
    if (connection_->unsent() <= kMostUnsent) return;
    connection_->close(Error(ENOBUFS, "a client that does not read its answers"));
  }

 private:
  enum class State { silent, challenged, proven, refused };

  Result<Memory> on_message(const wire::FrameHeader& header,
                            std::span<const std::byte> message) override;
  void on_payload() override {}
  void on_closed(const Error& why) override;

  Result<void> greeted(const Greeting& greeting);
  Result<void> answered(const Proof& proof);
  Result<void> asked(Asked&& what);
  void lock(Asked&& what);

  Impl& arbiter_;
  const uint64_t id_;
  std::unique_ptr<Connection> connection_;
  Loop::TimerId deadline_ = 0;
  State state_ = State::silent;
  Greeting greeting_;
  Nonce nonce_{};
  std::shared_ptr<File> file_;  // once it is proven
};

Result<Memory> Arbiter::Impl::Guest::on_message(const wire::FrameHeader& header,
                                                std::span<const std::byte> message) {
  const auto handle = [&](auto decoded, auto then) -> Result<Memory> {
    if (!decoded) return std::move(decoded).error();
    if (Result<void> done = (this->*then)(std::move(*decoded)); !done) {
      return std::move(done).error();
    }
    return Memory{};
  };
  using wire::FrameType;
  if (header.payload_size != 0) return Error(EPROTO, "a payload for an arbiter");
  if (state_ == State::silent && header.type == FrameType::hello) {
    return handle(decode_greeting(message), &Guest::greeted);
  }
  if (state_ == State::challenged && header.type == FrameType::data) {
    return handle(decode_proof(message), &Guest::answered);
  }
  if (state_ == State::proven && header.type == FrameType::request) {
    return handle(decode_asked(message), &Guest::asked);
  }
  return Error(EPROTO, "a message out of turn");
}

Result<void> Arbiter::Impl::Guest::greeted(const Greeting& greeting) {
  greeting_ = greeting;
  nonce_ = make_nonce();
  const Proof proof = make_proof(arbiter_.key, Side::arbiter, greeting_, nonce_);
  connection_->send(encode(Challenge{nonce_, proof}));
  state_ = State::challenged;
  return {};
}

Result<void> Arbiter::Impl::Guest::answered(const Proof& proof) {
  if (!proves(arbiter_.key, Side::client, greeting_, nonce_, proof)) {
    return Error(EACCES, "a client that does not know the key");
  }
  file_ = arbiter_.find(greeting_.file);
  if (!file_) {
    state_ = State::refused;  // it reads why and goes, or is closed at the deadline
    send({.code = ENOENT});
    return {};
  }
  arbiter_.loop.cancel(deadline_);
  ++arbiter_.proven;
  state_ = State::proven;
  send(Answer{});
  return {};
}

Result<void> Arbiter::Impl::Guest::asked(Asked&& what) {
  if (what.id == 0) return Error(EPROTO, "a request without a number");
  if (what.call == Call::lock) {
    lock(std::move(what));
  } else if (what.call == Call::unlock) {
    // Not answered: nobody waits for it.
    auto granted = file_->locks.unlock({id_, what.a});
    if (!granted) return Error(EPROTO, granted.error().what());
    arbiter_.tell(*granted);
  } else {
    const auto value = apply(file_->values, what);
    send(value ? Answer{what.id, *value, 0}
               : Answer{what.id, 0, static_cast<uint32_t>(value.error().code())});
  }
  return {};
}

void Arbiter::Impl::Guest::lock(Asked&& what) {
  const auto now = file_->locks.lock({id_, what.id}, what.mode, std::move(what.ranges));
  if (!now) return send({what.id, 0, static_cast<uint32_t>(now.error().code())});
  if (*now) send({what.id, 0, 0});
}

void Arbiter::Impl::Guest::on_closed(const Error& why) {
  log::debug("arbiter: {}: {}", connection_->peer().where, why.message());
  Impl& arbiter = arbiter_;
  const auto file = std::move(file_);
  if (file) --arbiter.proven;
  const uint64_t id = id_;
  arbiter.guests.erase(id);  // destroys this
  if (file) arbiter.tell(file->locks.forget(id));
}

Arbiter::Impl::~Impl() {
  thread.reset();
  guests.clear();
  listener.reset();
}

Result<void> Arbiter::Impl::listen() {
  const auto try_on = [this](const char* host) {
    return transport.listen({Address::Kind::tcp, host, 0}, loop,
                            [this](std::unique_ptr<Connection> c) { accepted(std::move(c)); });
  };
  const bool near = options.reach == Reach::loopback;
  auto listening = try_on(near ? "127.0.0.1" : "::");  // "::" is IPv4 as well
  if (!listening && !near) listening = try_on("0.0.0.0");
  if (!listening) return std::move(listening).error().at("arbiter");
  listener = std::move(*listening);
  hosts = near ? std::vector<std::string>{"127.0.0.1"} : own_addresses(Invitation::kHosts);
  return {};
}

void Arbiter::Impl::accepted(std::unique_ptr<Connection> connection) {
  if (guests.size() - proven >= kMostUnproven) return;
  const uint64_t id = ++last_guest;
  auto& guest = guests[id] = std::make_unique<Guest>(*this, id, std::move(connection));
  guest->start();
}

std::shared_ptr<File> Arbiter::Impl::find(uint64_t file) {
  std::lock_guard lock(mutex);
  const auto found = files.find(file);
  return found == files.end() ? nullptr : found->second;
}

void Arbiter::Impl::tell(const std::vector<RangeLocks::Ticket>& granted) {
  for (const auto& [owner, id] : granted) {
    // One that is closing holds its locks until it is told so, and is still there.
    guests.at(owner)->send({id, 0, 0});
  }
}

// ---- What its maker sees ----

namespace {

// Each rank of each file is a connection here. The limit that shells give is for programs that use
// select(), and most jobs may have far more; but a child that closes all that it may have must not
// take minutes.
void allow_many_descriptors() {
  constexpr rlim_t kEnough = 65536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<std::unique_ptr<Arbiter>> Arbiter::start(const Options& options) {
  allow_many_descriptors();
  try {
    auto impl = std::make_unique<Impl>(options);
    if (auto listening = impl->listen(); !listening) return std::move(listening).error();
    impl->loop.post([] { behave_as_a_guest(); });
    impl->thread.emplace(impl->loop, "forebay-arbiter");
    return std::unique_ptr<Arbiter>(new Arbiter(std::move(impl)));
  } catch (const std::system_error& e) {
    return Error(e.code().value(), fmt::format("arbiter: cannot be started: {}", e.what()));
  }
}

Arbiter::Arbiter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Arbiter::~Arbiter() = default;

Invitation Arbiter::open_file() {
  Invitation invitation;
  invitation.key = impl_->key_bytes;
  invitation.port = impl_->listener->address().port;
  for (size_t i = 0; i < impl_->hosts.size(); ++i) {
    const std::string& host = impl_->hosts[i];
    FOREBAY_ASSERT(host.size() < invitation.hosts[i].size());
    std::copy(host.begin(), host.end(), invitation.hosts[i].begin());
  }
  std::lock_guard lock(impl_->mutex);
  invitation.file = ++impl_->last_file;
  impl_->files.emplace(invitation.file, std::make_shared<File>());
  return invitation;
}

void Arbiter::close_file(const Invitation& invitation) {
  std::lock_guard lock(impl_->mutex);
  impl_->files.erase(invitation.file);
}

size_t Arbiter::clients() const {
  return impl_->proven;
}

}  // namespace forebay::mpiio
