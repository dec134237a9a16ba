// The physical limit that we measure ourselves against: bare sockets without a protocol. A
// ping-pong of 64 bytes on epoll, and a stream whose receiver pwrites or whose sender preads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace forebay::bench {

inline constexpr size_t kPing = 64;
inline constexpr size_t kBareChunk = 1 << 20;

enum class Socket { unix_socket, tcp };

// A listening socket: for unix at `path`; for tcp on loopback with an ephemeral port.
class BareListener {
 public:
  BareListener(Socket kind, const std::string& path);
  ~BareListener();
  BareListener(const BareListener&) = delete;

  int fd() const { return fd_; }
  int connect() const;  // a new connected socket, blocking

 private:
  Socket kind_;
  std::string path_;
  uint16_t port_ = 0;
  int fd_ = -1;
};

// Answers every 64 bytes with 64 bytes, `threads` of them on epoll, until killed.
[[noreturn]] void serve_pings(int listener, unsigned threads);
// One ping and its pong.
void ping(int fd);

// The stream server: serves one connection after another until killed, and opens its file for each,
// as it may have been removed meanwhile. A request is its direction,
// offset and length; a write is answered with one byte once it is in the file.
[[noreturn]] void serve_streams(int listener, const std::string& file);
void stream_write(int fd, uint64_t offset, const std::byte* data, uint64_t length);
void stream_read(int fd, uint64_t offset, std::byte* data, uint64_t length);

}  // namespace forebay::bench
