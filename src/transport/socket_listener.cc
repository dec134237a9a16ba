#include "transport/socket_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "core/log.h"
#include "transport/arrival.h"
#include "transport/fd_watch.h"
#include "transport/frame_connection.h"
#include "transport/peer.h"
#include "transport/shared_bytes.h"
#include "transport/socket_address.h"
#include "transport/socket_bytes.h"

namespace forebay {

namespace {

constexpr int kBacklog = 1024;
constexpr int kAcceptsInARow = 64;  // then others get their turn
constexpr Duration kPauseWhenFull = std::chrono::milliseconds(100);

// A Unix socket's file, removed when destroyed if it is still the one that we made.
class SocketFile {
 public:
  SocketFile() = default;
  explicit SocketFile(const std::string& path) : path_(path) {
    struct stat st;
    if (::lstat(path.c_str(), &st) == 0) device_ = st.st_dev, inode_ = st.st_ino;
  }
  SocketFile(SocketFile&& other) noexcept
      : path_(std::exchange(other.path_, {})), device_(other.device_), inode_(other.inode_) {}
  ~SocketFile() {
    struct stat st;
    if (path_.empty() || ::lstat(path_.c_str(), &st) != 0) return;
    if (st.st_dev == device_ && st.st_ino == inode_) ::unlink(path_.c_str());
  }

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Two servers that find the same stale file must not remove each other's new one: whoever replaces
// a socket's file holds a lock on its directory. Somebody else's lock is not waited for longer than
// a moment, because anybody who can read the directory can lock it.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& path) {
    const auto parent = std::filesystem::path(path).parent_path();
    fd_ = Fd(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int i = 0; fd_ && i < 100 && ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  Fd fd_;
};

class SocketListener final : public Listener, public FdUser {
 public:
  SocketListener(Address address, SocketFile file, Fd socket, Loop& loop,
                 const SocketOptions& options, Transport::Accept accept)
      : address_(std::move(address)),
        file_(std::move(file)),
        loop_(loop),
        options_(options),
        accept_(std::move(accept)),
        alive_(std::make_shared<bool>(true)),
        watch_(loop, std::move(socket), *this) {
    if (options_.key && address_.kind == Address::Kind::tcp) {
      arrivals_.emplace(loop, options_.key, options_.key_limit, accept_);
    }
    watch_.await_readable();
  }
  ~SocketListener() override {
    *alive_ = false;
    if (resume_) loop_.cancel(resume_);
  }
  const Address& address() const override { return address_; }

 private:
  void readable() override;
  void pause(int code);
  void accepted(Fd socket);

  const Address address_;
  SocketFile file_;
  Loop& loop_;
  const SocketOptions options_;
  Transport::Accept accept_;
  std::shared_ptr<bool> alive_;       // accept_ may destroy the listener
  std::optional<Arrivals> arrivals_;  // if they prove a key
  FdWatch watch_;
  Loop::TimerId resume_ = 0;
};

bool out_of_resources(int code) {
  return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

void SocketListener::readable() {
  const auto alive = alive_;
  for (int i = 0; i < kAcceptsInARow; ++i) {
    Fd socket(::accept4(watch_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      accepted(std::move(socket));
      if (!*alive) return;
    } else if (out_of_resources(errno)) {
      return pause(errno);
    } else if (errno == EAGAIN) {
      break;
    }
    // Everything else is about one connection that is gone already.
  }
  watch_.await_readable();
}

// The connection stays in the backlog and the socket stays readable: waiting for it would spin.
void SocketListener::pause(int code) {
  log::warn("{}: cannot accept a connection ({}); trying again in {} ms", address_.text(),
            Error(code).message(), kPauseWhenFull / std::chrono::milliseconds(1));
  resume_ = loop_.after(kPauseWhenFull, [this] {
    resume_ = 0;
    readable();
  });
}

void SocketListener::accepted(Fd socket) {
  tune_socket(socket.get(), address_.kind, options_);
  Peer peer = address_.kind == Address::Kind::tcp ? peer_of_tcp_socket(socket.get())
                                                  : peer_of_unix_socket(socket.get());
  if (arrivals_) return arrivals_->add(std::move(socket), std::move(peer));
  auto bytes = address_.kind == Address::Kind::tcp
                   ? make_socket_bytes(std::move(socket))
                   : make_unix_server_bytes(std::move(socket), options_.max_shared_area);
  accept_(std::make_unique<FrameConnection>(loop_, std::move(bytes), std::move(peer)));
}

// Is nobody listening on this socket's file?
bool is_stale(const SocketAddress& where) {
  Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return false;
  return ::connect(probe.get(), where.get(), where.size) != 0 && errno == ECONNREFUSED;
}

bool is_socket(const std::string& path) {
  struct stat st;
  return ::lstat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode);
}

Result<void> bind_unix(int fd, const Address& address, const SocketAddress& where, mode_t mode) {
  int rc = ::bind(fd, where.get(), where.size);
  if (rc != 0 && errno == EADDRINUSE && is_socket(address.host) && is_stale(where)) {
    ::unlink(address.host.c_str());
    rc = ::bind(fd, where.get(), where.size);
  }
  if (rc != 0 && errno == EADDRINUSE) {
    return Error(EADDRINUSE,
                 address.text() + (is_socket(address.host) ? ": a server listens there already"
                                                           : ": a file is in the way"));
  }
  if (rc != 0) return Error(errno, address.text() + ": cannot listen there");
  if (::chmod(address.host.c_str(), mode) != 0) {
    return Error(errno, address.text() + ": cannot set the mode of the socket");
  }
  return {};
}

Result<void> bind_tcp(int fd, const Address& address, const SocketAddress& where, bool anywhere) {
  if (!anywhere && !where.loopback()) {
    return Error(
        EPERM, address.text() +
                   ": without a key, TCP is served on loopback addresses only (127.0.0.1, [::1]), "
                   "because a client's identity is known on this machine only; `forebay key make "
                   "FILE` makes one, and key_file names it");
  }
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, where.get(), where.size) == 0) return {};
  return Error(errno, address.text() + ": cannot listen there");
}

Result<uint16_t> bound_port(int fd) {
  SocketAddress bound;
  bound.size = sizeof bound.storage;
  if (::getsockname(fd, bound.get(), &bound.size) != 0) return Error(errno, "getsockname");
  return bound.port();
}

}  // namespace

Result<std::unique_ptr<Listener>> listen_on_socket(const Address& address, Loop& loop,
                                                   const SocketOptions& options,
                                                   Transport::Accept accept) {
  const bool tcp = address.kind == Address::Kind::tcp;
  auto where = to_socket_address(address);
  if (!where) return std::move(where).error();
  auto socket = make_socket(address, where->family());
  if (!socket) return std::move(socket).error();

  std::optional<DirectoryLock> lock;
  if (!tcp) lock.emplace(address.host);
  const bool anywhere = options.peers_prove_themselves || options.key;
  const auto bound = tcp ? bind_tcp(socket->get(), address, *where, anywhere)
                         : bind_unix(socket->get(), address, *where, options.unix_mode);
  if (!bound) return bound.error();
  SocketFile file = tcp ? SocketFile() : SocketFile(address.host);
  if (::listen(socket->get(), kBacklog) != 0) {
    return Error(errno, address.text() + ": cannot listen there");
  }
  Address real = address;
  if (tcp) {
    auto port = bound_port(socket->get());
    if (!port) return std::move(port).error();
    real.port = *port;
  }
  return std::unique_ptr<Listener>(std::make_unique<SocketListener>(
      std::move(real), std::move(file), std::move(*socket), loop, options, std::move(accept)));
}

}  // namespace forebay
