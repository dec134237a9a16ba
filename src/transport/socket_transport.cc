// Connecting: one attempt is an object that owns itself through the calls under way, so that it
// needs no transport behind it.
#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <optional>

#include "core/log.h"
#include "transport/fd_watch.h"
#include "transport/frame_connection.h"
#include "transport/peer.h"
#include "transport/shared_bytes.h"
#include "transport/socket_address.h"
#include "transport/socket_bytes.h"
#include "transport/socket_listener.h"
#include "transport/socket_transport.h"

namespace forebay {

namespace {

// A Unix socket whose backlog is full says EAGAIN at once and gives nothing to wait for.
constexpr Duration kBacklogFullPause = std::chrono::milliseconds(2);

class Attempt final : public FdUser, public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(const Address& address, Loop& loop, const SocketOptions& options,
          Transport::Connected done)
      : address_(address), loop_(loop), options_(options), done_(std::move(done)) {}

  void begin(Duration timeout) {
    deadline_ = loop_.after(timeout, [self = shared_from_this()] {
      self->fail(Error(ETIMEDOUT, self->address_.text() + ": no answer to a connect"));
    });
    try_connect();
  }

 private:
  void try_connect();
  void writable() override;
  void readable() override;
  void connected(Fd socket);
  bool offer(Fd& socket);
  void ask(Fd socket);
  void take_challenge();
  void finish(std::unique_ptr<ByteStream> bytes, std::unique_ptr<FrameSeals> seals = nullptr);
  void fail(Error why);
  Error refused(int code) const;

  const Address address_;
  Loop& loop_;
  const SocketOptions options_;
  Transport::Connected done_;
  Loop::TimerId deadline_ = 0;
  Loop::TimerId retry_ = 0;
  std::unique_ptr<FdWatch> watch_;
  std::shared_ptr<SharedRegion> offered_;
  std::optional<KeyAsker> asker_;
  std::array<std::byte, kKeyChallenge> challenge_;
  size_t challenge_got_ = 0;
  Peer peer_;
};

void Attempt::try_connect() {
  auto where = to_socket_address(address_);
  if (!where) return fail(std::move(where).error());
  auto socket = make_socket(address_, where->family());
  if (!socket) return fail(std::move(socket).error());
  tune_socket(socket->get(), address_.kind, options_);
  if (::connect(socket->get(), where->get(), where->size) == 0) {
    return connected(std::move(*socket));
  }
  if (errno == EAGAIN && address_.kind == Address::Kind::unix_socket) {
    retry_ = loop_.after(kBacklogFullPause, [self = shared_from_this()] { self->try_connect(); });
  } else if (errno == EINPROGRESS) {
    watch_ = std::make_unique<FdWatch>(loop_, std::move(*socket), *this);
    watch_->await_writable();
  } else {
    fail(refused(errno));
  }
}

void Attempt::writable() {
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(watch_->fd(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  if (code != 0) return fail(refused(code));
  connected(watch_->release());
}

void Attempt::connected(Fd socket) {
  const auto keep = shared_from_this();
  watch_.reset();
  // The user database is not asked who serves a TCP port: a client has no use for it, and the
  // answer may take long.
  if (address_.kind == Address::Kind::tcp) {
    peer_.where = address_.text();
    if (options_.key) return ask(std::move(socket));
  } else {
    peer_ = peer_of_unix_socket(socket.get());
    if (options_.shared_area > 0 && offer(socket)) return;
  }
  finish(make_socket_bytes(std::move(socket)));
}

// Offers to share memory; false, with the socket as it was, if there is none to share.
bool Attempt::offer(Fd& socket) {
  SharedRegion::Layout layout;
  layout.area = options_.shared_area;
  const bool has_lent = options_.lent && options_.lent->descriptor() >= 0;
  auto region = SharedRegion::create(layout, has_lent ? options_.lent : nullptr);
  if (!region) {
    log::debug("{}; going on without", region.error().message());
    return false;
  }
  offered_ = std::move(*region);
  if (auto sent = send_offer(socket.get(), *offered_); !sent) {
    return fail(std::move(sent).error()), true;
  }
  watch_ = std::make_unique<FdWatch>(loop_, std::move(socket), *this);
  watch_->await_readable();
  return true;
}

// Proves the key, and wants it proved. A new connection has room for so few bytes.
void Attempt::ask(Fd socket) {
  asker_.emplace(options_.key, options_.role, this_process_caller());
  const std::string hello = asker_->hello();
  const ssize_t n = ::send(socket.get(), hello.data(), hello.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n != static_cast<ssize_t>(hello.size())) return fail(refused(n < 0 ? errno : EIO));
  watch_ = std::make_unique<FdWatch>(loop_, std::move(socket), *this);
  watch_->await_readable();
}

void Attempt::take_challenge() {
  while (challenge_got_ < challenge_.size()) {
    const ssize_t n = ::recv(watch_->fd(), challenge_.data() + challenge_got_,
                             challenge_.size() - challenge_got_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return watch_->await_readable();
    if (n <= 0) {
      // Or it is on its way down: as any other connection that is lost, so that it is tried again.
      return fail(Error(ECONNRESET, address_.text() +
                                        ": the server there did not take our key: it has "
                                        "none (key_file), or is too old"));
    }
    challenge_got_ += static_cast<size_t>(n);
  }
  Result<FrameSeals> seals = asker_->answer(challenge_);
  if (!seals) return fail(std::move(seals).error().at(address_.text()));
  Fd socket = watch_->release();
  watch_.reset();
  finish(make_socket_bytes(std::move(socket)), std::make_unique<FrameSeals>(std::move(*seals)));
}

void Attempt::readable() {
  const auto keep = shared_from_this();
  if (asker_) return take_challenge();
  Result<OfferAnswer> answer = receive_answer(watch_->fd());
  if (!answer && answer.error().code() == EAGAIN) return watch_->await_readable();
  if (!answer) return fail(std::move(answer).error());
  Fd socket = watch_->release();
  watch_.reset();
  if (answer->plain) return finish(make_socket_bytes(std::move(socket)));
  offered_->drop_descriptor();
  finish(make_shared_client_bytes(std::move(socket), std::move(answer->bell), std::move(offered_)));
}

void Attempt::finish(std::unique_ptr<ByteStream> bytes, std::unique_ptr<FrameSeals> seals) {
  loop_.cancel(deadline_);
  FrameRules rules;
  rules.seals = std::move(seals);
  done_(std::unique_ptr<Connection>(std::make_unique<FrameConnection>(
      loop_, std::move(bytes), std::move(peer_), std::move(rules))));
}

void Attempt::fail(Error why) {
  const auto keep = shared_from_this();
  loop_.cancel(deadline_);
  loop_.cancel(retry_);
  watch_.reset();
  done_(std::move(why));
}

Error Attempt::refused(int code) const {
  const bool nobody = code == ECONNREFUSED || code == ENOENT;
  return Error(code,
               address_.text() + (nobody ? ": nobody listens there; forebay start starts a server"
                                         : ": cannot connect"));
}

}  // namespace

Result<std::unique_ptr<Listener>> SocketTransport::listen(const Address& address, Loop& loop,
                                                          Accept accept) {
  return listen_on_socket(address, loop, options_, std::move(accept));
}

void SocketTransport::connect(const Address& address, Loop& loop, Duration timeout,
                              Connected done) {
  auto attempt = std::make_shared<Attempt>(address, loop, options_, std::move(done));
  loop.post([attempt = std::move(attempt), timeout] { attempt->begin(timeout); });
}

}  // namespace forebay
