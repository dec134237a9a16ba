#include "mpiio/arbiter_connect.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "mpiio/arbiter_wire.h"
#include "transport/socket_address.h"

namespace forebay::mpiio {

namespace {

// An address that does not answer may lead nowhere: so long after it the next one is tried too.
constexpr Duration kHeadStart = std::chrono::milliseconds(250);
constexpr Duration kHandshake = std::chrono::seconds(5);
constexpr size_t kMaxMessage = 256;  // of what an arbiter says

Time now() {
  return SteadyClock().now();
}

// Milliseconds for poll(), rounded up; -1: for ever.
int poll_time(Time until) {
  if (until == BlockingSocket::kForever) return -1;
  const Duration left = std::max(Duration::zero(), until - now());
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<int64_t>(ms, 1'000'000));
}

// False: the time is over. A socket that broke is ready: the next call on it says how.
bool wait_for(int fd, short events, Time until) {
  for (;;) {
    pollfd one{fd, events, 0};
    const int ready = ::poll(&one, 1, poll_time(until));
    if (ready > 0) return true;
    if (ready == 0 && now() >= until) return false;
  }
}

}  // namespace

bool BlockingSocket::send(const std::string& bytes, Time until) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::send(fd_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!wait_for(fd_.get(), POLLOUT, until)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

Result<void> BlockingSocket::fill(std::span<std::byte> out, Time until) {
  while (!out.empty()) {
    const ssize_t n = ::recv(fd_.get(), out.data(), out.size(), 0);
    if (n == 0) return Error(ECONNRESET, "the connection was closed");
    if (n > 0) {
      out = out.subspan(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_for(fd_.get(), POLLIN, until)) return Error(ETIMEDOUT, "no answer");
    } else if (errno != EINTR) {
      return Error(errno, "the connection broke");
    }
  }
  return {};
}

Result<std::vector<std::byte>> BlockingSocket::receive(wire::FrameType type, Time until) {
  std::array<std::byte, wire::kHeaderSize> head;
  if (auto got = fill(head, until); !got) return std::move(got).error();
  const auto header = wire::decode_header(head);
  if (!header) return header.error();
  if (header->type != type || header->payload_size != 0 || header->message_size > kMaxMessage) {
    return Error(EPROTO, "not what an arbiter says");
  }
  std::vector<std::byte> message(header->message_size);
  if (auto got = fill(message, until); !got) return std::move(got).error();
  return message;
}

void BlockingSocket::shut() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

namespace {

// Says hello, and hears whether it is the arbiter and takes us. EACCES: it is somebody else.
Result<void> shake_hands(BlockingSocket& socket, const Invitation& invitation, Time until) {
  const SealKey key(invitation.key);
  const Greeting greeting{invitation.file, make_nonce()};
  const Error gone(ECONNRESET, "the connection was closed");
  if (!socket.send(encode(greeting), until)) return gone;
  auto message = socket.receive(wire::FrameType::welcome, until);
  if (!message) return std::move(message).error();
  const auto challenge = decode_challenge(*message);
  if (!challenge) return challenge.error();
  if (!proves(key, Side::arbiter, greeting, challenge->nonce, challenge->proof)) {
    return Error(EACCES, "what listens there is not the job's arbiter");
  }
  const Proof proof = make_proof(key, Side::client, greeting, challenge->nonce);
  if (!socket.send(encode(proof), until)) return gone;
  message = socket.receive(wire::FrameType::reply, until);
  if (!message) return std::move(message).error();
  const auto answer = decode_answer(*message);
  if (!answer) return answer.error();
  if (answer->code != 0)
    return Error(static_cast<int>(answer->code), "the arbiter has no such file");
  return {};
}

// The addresses one after the other, each with a head start; whichever is the arbiter's is taken.
class Search {
 public:
  Search(const Invitation& invitation, Time until) : invitation_(invitation), until_(until) {
    for (const auto& host : invitation.hosts) {
      const std::string text(host.data(), ::strnlen(host.data(), host.size()));
      if (!text.empty()) left_.push_back({Address::Kind::tcp, text, invitation.port});
    }
    std::reverse(left_.begin(), left_.end());
  }

  Result<BlockingSocket> run() {
    while (now() < until_) {
      if (!left_.empty() && (pending_.empty() || now() >= next_)) try_next();
      if (pending_.empty() && left_.empty()) return failed();
      if (auto found = look()) return std::move(*found);
    }
    return Error(ETIMEDOUT, "no arbiter answers at " + tried_);
  }

 private:
  struct Pending {
    Address address;
    Fd fd;
  };

  void try_next();
  std::optional<BlockingSocket> look();
  std::optional<BlockingSocket> connected(Pending pending);
  void note(const Address& address, const Error& why);
  Error failed() const {
    const Error none(EINVAL, "the invitation names no address");
    return Error(why_ ? *why_ : none)
        .at("cannot reach the arbiter of shared file pointers (rank 0)");
  }

  const Invitation& invitation_;
  const Time until_;
  std::vector<Address> left_;  // the next one last
  std::vector<Pending> pending_;
  Time next_{};
  std::optional<Error> why_;
  std::string tried_;
};

void Search::note(const Address& address, const Error& why) {
  // Of several reasons, that of somebody who knows the key is the one that matters.
  if (!why_ || why.code() == ENOENT) why_ = Error(why).at(address.text());
}

void Search::try_next() {
  const Address address = std::move(left_.back());
  left_.pop_back();
  next_ = now() + kHeadStart;
  tried_ += (tried_.empty() ? "" : ", ") + address.text();
  const auto where = to_socket_address(address);
  if (!where) return note(address, where.error());
  auto fd = make_socket(address, where->family());
  if (!fd) return note(address, fd.error());
  tune_socket(fd->get(), address.kind, {.tcp_dead_after = kDeadAfter});
  if (::connect(fd->get(), where->get(), where->size) != 0 && errno != EINPROGRESS) {
    return note(address, Error(errno, "cannot connect"));
  }
  pending_.push_back({address, std::move(*fd)});
}

// Waits until one of them is connected or it is time for the next.
std::optional<BlockingSocket> Search::look() {
  std::vector<pollfd> polled;
  for (const Pending& p : pending_) polled.push_back({p.fd.get(), POLLOUT, 0});
  ::poll(polled.data(), polled.size(), poll_time(left_.empty() ? until_ : std::min(next_, until_)));
  for (size_t i = polled.size(); i-- > 0;) {
    if (polled[i].revents == 0) continue;
    Pending ready = std::move(pending_[i]);
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    if (auto found = connected(std::move(ready))) return found;
  }
  return std::nullopt;
}

std::optional<BlockingSocket> Search::connected(Pending pending) {
  int code = 0;
  socklen_t size = sizeof code;
  ::getsockopt(pending.fd.get(), SOL_SOCKET, SO_ERROR, &code, &size);
  if (code != 0) return note(pending.address, Error(code, "cannot connect")), std::nullopt;
  BlockingSocket socket(std::move(pending.fd));
  auto done = shake_hands(socket, invitation_, std::min(until_, now() + kHandshake));
  if (!done) return note(pending.address, done.error()), std::nullopt;
  return socket;
}

}  // namespace

Result<BlockingSocket> connect_to_arbiter(const Invitation& invitation, Duration within) {
  return Search(invitation, now() + within).run();
}

}  // namespace forebay::mpiio
