#include "bench/bare.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace forebay::bench {

namespace {

int checked(ssize_t result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return static_cast<int>(result);
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

sockaddr_in tcp_address(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// As our own transport tunes its sockets.
void tune(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  const int on = 1, buffer = 512 << 10;
  if (domain == AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  if (domain == AF_INET) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void send_all(int fd, const void* data, size_t n) {
  auto* p = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t sent = checked(send(fd, p, n, MSG_NOSIGNAL), "send");
    p += sent, n -= static_cast<size_t>(sent);
  }
}

// False at the end of the stream.
bool receive_all(int fd, void* data, size_t n) {
  auto* p = static_cast<char*>(data);
  while (n > 0) {
    const ssize_t got = recv(fd, p, n, MSG_WAITALL);
    if (got <= 0) return false;
    p += got, n -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

BareListener::BareListener(Socket kind, const std::string& path) : kind_(kind), path_(path) {
  fd_ = checked(socket(kind == Socket::tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                "socket");
  if (kind == Socket::tcp) {
    sockaddr_in address = tcp_address(0);
    socklen_t size = sizeof address;
    checked(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), "bind");
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  } else {
    const sockaddr_un address = unix_address(path);
    checked(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  }
  checked(listen(fd_, 512), "listen");
}

BareListener::~BareListener() {
  close(fd_);
  if (kind_ == Socket::unix_socket) unlink(path_.c_str());
}

int BareListener::connect() const {
  const int fd = checked(
      socket(kind_ == Socket::tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  if (kind_ == Socket::tcp) {
    const sockaddr_in address = tcp_address(port_);
    checked(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
  } else {
    const sockaddr_un address = unix_address(path_);
    checked(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
  }
  tune(fd);
  return fd;
}

void serve_pings(int listener, unsigned threads) {
  std::vector<int> polls;
  for (unsigned i = 0; i < threads; ++i) polls.push_back(epoll_create1(EPOLL_CLOEXEC));
  std::vector<std::thread> running;
  for (const int poll : polls) {
    running.emplace_back([poll] {
      epoll_event events[64];
      char message[kPing];
      for (;;) {
        const int n = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < n; ++i) {
          const int fd = events[i].data.fd;
          if (recv(fd, message, sizeof message, 0) != sizeof message) {
            close(fd);
          } else if (send(fd, message, sizeof message, MSG_NOSIGNAL) < 0) {
            close(fd);
          }
        }
      }
    });
  }
  for (size_t next = 0;; ++next) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    tune(fd);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(polls[next % polls.size()], EPOLL_CTL_ADD, fd, &event);
  }
}

void ping(int fd) {
  char message[kPing] = {};
  send_all(fd, message, sizeof message);
  if (!receive_all(fd, message, sizeof message)) throw std::runtime_error("the bare server left");
}

namespace {

struct StreamRequest {
  uint64_t write, offset, length;
};

bool serve_one(int fd, int file, std::vector<std::byte>& chunk, const StreamRequest& request) {
  for (uint64_t done = 0; done < request.length;) {
    const size_t n = std::min<uint64_t>(chunk.size(), request.length - done);
    const auto place = static_cast<off_t>(request.offset + done);
    if (request.write) {
      if (!receive_all(fd, chunk.data(), n)) return false;
      checked(pwrite(file, chunk.data(), n, place), "pwrite");
    } else {
      checked(pread(file, chunk.data(), n, place), "pread");
      send_all(fd, chunk.data(), n);
    }
    done += n;
  }
  const char end = 1;
  if (request.write) send_all(fd, &end, 1);
  return true;
}

}  // namespace

void serve_streams(int listener, const std::string& path) {
  std::vector<std::byte> chunk(kBareChunk);
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    tune(fd);
    const int file = checked(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), "open");
    StreamRequest request;
    while (receive_all(fd, &request, sizeof request) && serve_one(fd, file, chunk, request)) {
    }
    close(file);
    close(fd);
  }
}

void stream_write(int fd, uint64_t offset, const std::byte* data, uint64_t length) {
  const StreamRequest request{1, offset, length};
  send_all(fd, &request, sizeof request);
  send_all(fd, data, length);
  char end;
  if (!receive_all(fd, &end, 1)) throw std::runtime_error("the bare server left");
}

void stream_read(int fd, uint64_t offset, std::byte* data, uint64_t length) {
  const StreamRequest request{0, offset, length};
  send_all(fd, &request, sizeof request);
  if (!receive_all(fd, data, length)) throw std::runtime_error("the bare server left");
}

}  // namespace forebay::bench
