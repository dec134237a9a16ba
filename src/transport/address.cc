#include <fmt/format.h>
#include <sys/un.h>

#include <charconv>

#include "transport/transport.h"

namespace forebay {

namespace {

constexpr size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;

template <class... Args>
Error bad(std::string_view text, fmt::format_string<Args...> why, Args&&... args) {
  return Error(
      EINVAL, fmt::format("address '{}': {}", text, fmt::format(why, std::forward<Args>(args)...)));
}

Result<Address> parse_unix(std::string_view text, std::string_view path) {
  if (path.empty()) return bad(text, "a path must follow 'unix:'");
  if (path.find('\0') != path.npos) return bad(text, "the path holds a NUL");
  if (path.size() > kMaxUnixPath) {
    return Error(
        ENAMETOOLONG,
        fmt::format("address '{}': the path of a Unix socket has at most {} bytes, this one "
                    "has {}; use a shorter directory",
                    text, kMaxUnixPath, path.size()));
  }
  return Address{Address::Kind::unix_socket, std::string(path), 0};
}

Result<Address> parse_tcp(std::string_view text, std::string_view rest) {
  const size_t colon = rest.rfind(':');
  if (colon == rest.npos) return bad(text, "expected tcp:HOST:PORT");
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) return bad(text, "the host is missing");
  if (!bracketed && host.find(':') != host.npos) {
    return bad(text, "an IPv6 host goes in brackets, as in tcp:[::1]:4711");
  }
  uint16_t number = 0;
  const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || ec != std::errc() || end != port.data() + port.size()) {
    return bad(text, "the port must be a number from 0 to 65535");
  }
  return Address{Address::Kind::tcp, std::string(host), number};
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view rest = colon == text.npos ? "" : text.substr(colon + 1);
  if (kind == "unix") return parse_unix(text, rest);
  if (kind == "tcp") return parse_tcp(text, rest);
  if (kind == "sim") {
    if (rest.empty()) return bad(text, "a name must follow 'sim:'");
    return Address{Kind::simulated, std::string(rest), 0};
  }
  return bad(text, "must begin with 'unix:' (a path) or 'tcp:' (HOST:PORT)");
}

std::string Address::text() const {
  switch (kind) {
    case Kind::unix_socket:
      return "unix:" + host;
    case Kind::simulated:
      return "sim:" + host;
    case Kind::tcp:
      break;
  }
  const bool v6 = host.find(':') != host.npos;
  return v6 ? fmt::format("tcp:[{}]:{}", host, port) : fmt::format("tcp:{}:{}", host, port);
}

}  // namespace forebay
