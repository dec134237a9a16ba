#include "transport/arrival.h"

#include <sys/socket.h>

#include <vector>

#include "core/log.h"
#include "transport/fd_watch.h"
#include "transport/frame_connection.h"
#include "transport/key_handshake.h"
#include "transport/socket_bytes.h"

namespace forebay {

namespace {

// Of the first message of whoever nobody knows.
constexpr uint32_t kUnknownFirst = 64 * 1024;

}  // namespace

class Arrivals::Arrival final : public FdUser, public std::enable_shared_from_this<Arrival> {
 public:
  Arrival(Arrivals& all, uint64_t number, Fd socket, Peer peer)
      : all_(all),
        loop_(all.loop_),
        number_(number),
        peer_(std::move(peer)),
        asked_(all.key_),
        watch_(all.loop_, std::move(socket), *this) {
    deadline_ = all.loop_.after(all.limit_, [this] {
      deadline_ = 0;
      all_.refuse(number_, Error(ETIMEDOUT, "it did not prove itself in time"));
    });
    watch_.await_readable();
  }
  ~Arrival() {
    if (deadline_) loop_.cancel(deadline_);
  }
  const Peer& peer() const { return peer_; }

 private:
  enum class Step { first_byte, hello, answer, groups };

  void readable() override;
  void look();
  Result<bool> next();
  Result<bool> take_hello();
  Result<bool> take_answer();
  void await(Step step, size_t bytes) {
    step_ = step;
    in_.assign(bytes, std::byte{0});
    got_ = 0;
  }
  void proved();

  Arrivals& all_;  // may go while we are being called
  Loop& loop_;
  const uint64_t number_;
  Peer peer_;
  KeyAsked asked_;
  Step step_ = Step::first_byte;
  std::vector<std::byte> in_;
  size_t got_ = 0;
  Loop::TimerId deadline_ = 0;
  FdWatch watch_;
};

void Arrivals::Arrival::readable() {
  const auto keep = shared_from_this();
  if (step_ == Step::first_byte) return look();
  while (got_ < in_.size()) {
    const ssize_t n = ::recv(watch_.fd(), in_.data() + got_, in_.size() - got_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return watch_.await_readable();
    if (n <= 0) {
      return all_.refuse(number_, Error(n == 0 ? ECONNRESET : errno, "it went without a proof"));
    }
    got_ += static_cast<size_t>(n);
    if (got_ < in_.size()) continue;
    const Result<bool> more = next();
    if (!more) return all_.refuse(number_, more.error());
    if (!*more) return proved();
  }
}

// Frames begin otherwise.
void Arrivals::Arrival::look() {
  char first = 0;
  const ssize_t n = ::recv(watch_.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return watch_.await_readable();
  if (n <= 0) return all_.forget(number_);
  if (first == kKeyMagic[0]) {
    await(Step::hello, kKeyHello);
    return readable();
  }
  FrameRules rules;
  if (!peer_.caller) rules.first_message = kUnknownFirst;
  all_.through(number_,
               std::make_unique<FrameConnection>(all_.loop_, make_socket_bytes(watch_.release()),
                                                 std::move(peer_), std::move(rules)));
}

// False: all is said.
Result<bool> Arrivals::Arrival::next() {
  if (step_ == Step::hello) return take_hello();
  if (step_ == Step::answer) return take_answer();
  if (auto good = asked_.groups(in_); !good) return std::move(good).error();
  return false;
}

Result<bool> Arrivals::Arrival::take_hello() {
  Result<std::string> challenge = asked_.challenge(std::span(in_).first<kKeyHello>());
  if (!challenge) return std::move(challenge).error();
  // A new connection has room for so few bytes.
  const ssize_t n =
      ::send(watch_.fd(), challenge->data(), challenge->size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n != static_cast<ssize_t>(challenge->size())) {
    return Error(n < 0 ? errno : EIO, "cannot send it a challenge");
  }
  await(Step::answer, kKeyAnswer);
  return true;
}

Result<bool> Arrivals::Arrival::take_answer() {
  const Result<size_t> rest = asked_.answer(std::span(in_).first<kKeyAnswer>());
  if (!rest) return rest.error();
  if (*rest == 0) return false;
  await(Step::groups, *rest);
  return true;
}

void Arrivals::Arrival::proved() {
  const bool server = asked_.role() == KeyRole::server;
  peer_.caller = std::make_shared<const Caller>(asked_.caller());
  peer_.proof = server ? Peer::Proof::server : Peer::Proof::client;
  peer_.may_speak_for_others = server || peer_.caller->uid == 0;
  peer_.where += ", by key";
  FrameRules rules;
  rules.seals = std::make_unique<FrameSeals>(asked_.seals());
  all_.through(number_,
               std::make_unique<FrameConnection>(all_.loop_, make_socket_bytes(watch_.release()),
                                                 std::move(peer_), std::move(rules)));
}

Arrivals::Arrivals(Loop& loop, AuthKeyRef key, Duration limit, Transport::Accept& accept)
    : loop_(loop), key_(std::move(key)), limit_(limit), accept_(accept) {}

Arrivals::~Arrivals() = default;

void Arrivals::add(Fd socket, Peer peer) {
  if (arrivals_.size() >= kMost) {
    log::warn("{}: closed: {} others have not proved themselves yet", peer.where, kMost);
    return;
  }
  const uint64_t number = next_++;
  arrivals_.emplace(number,
                    std::make_shared<Arrival>(*this, number, std::move(socket), std::move(peer)));
}

// Whoever accepts may destroy us.
void Arrivals::through(uint64_t number, std::unique_ptr<Connection> connection) {
  forget(number);
  accept_(std::move(connection));
}

void Arrivals::refuse(uint64_t number, const Error& why) {
  log::warn("{}: refused: {}", arrivals_.at(number)->peer().where, why.message());
  forget(number);
}

// It may be on the stack; then it keeps itself.
void Arrivals::forget(uint64_t number) {
  arrivals_.erase(number);
}

}  // namespace forebay
