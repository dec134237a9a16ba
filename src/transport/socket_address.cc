#include "transport/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

namespace forebay {

namespace {

// The sender of a Unix stream sleeps whenever its own buffer is full, and each sleep costs a switch
// to the receiver and back; a chunk's worth of buffer lets both run. TCP sizes its buffers by
// itself.
constexpr int kUnixBuffer = 512 << 10;

void set_int(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

Result<SocketAddress> unix_address(const Address& address) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  if (address.host.size() >= sizeof un.sun_path) {
    return Error(ENAMETOOLONG, address.text() + ": too long for a Unix socket");
  }
  std::memcpy(un.sun_path, address.host.data(), address.host.size());
  SocketAddress out;
  std::memcpy(&out.storage, &un, sizeof un);
  out.size = offsetof(sockaddr_un, sun_path) + address.host.size() + 1;
  return out;
}

template <class Sockaddr>
SocketAddress wrap(const Sockaddr& in) {
  SocketAddress out;
  std::memcpy(&out.storage, &in, sizeof in);
  out.size = sizeof in;
  return out;
}

Result<SocketAddress> tcp_address(const Address& address) {
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) return wrap(v4);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(address.port);
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) return wrap(v6);
  return Error(EINVAL, address.text() + ": the host must be a numeric address or 'localhost'");
}

// The limit of ordinary users is small (net.core.wmem_max); a privileged process may pass it.
void set_buffer(int fd, int force, int option, int bytes) {
  if (::setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof bytes) != 0) {
    set_int(fd, SOL_SOCKET, option, bytes);
  }
}

}  // namespace

bool SocketAddress::loopback() const {
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  if (family() != AF_INET6) return false;
  const auto& a = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[12] == 127);
}

uint16_t SocketAddress::port() const {
  // sin_port and sin6_port lie at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Result<SocketAddress> to_socket_address(const Address& address) {
  switch (address.kind) {
    case Address::Kind::unix_socket:
      return unix_address(address);
    case Address::Kind::tcp:
      return tcp_address(address);
    case Address::Kind::simulated:
      break;
  }
  return Error(EAFNOSUPPORT, address.text() + ": not an address of a socket");
}

Result<Fd> make_socket(const Address& address, int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Error(errno, address.text() + ": cannot make a socket");
  return fd;
}

void tune_socket(int fd, Address::Kind kind, const SocketOptions& options) {
  if (kind == Address::Kind::unix_socket) {
    set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, kUnixBuffer);
    return;
  }
  // Half of the time without a word, then probes for the other half.
  constexpr int kProbes = 5;
  const auto total = std::chrono::duration_cast<std::chrono::seconds>(options.tcp_dead_after);
  const int seconds = static_cast<int>(std::clamp<int64_t>(total.count(), 2, 24 * 3600));
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 2 / kProbes));
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

}  // namespace forebay
