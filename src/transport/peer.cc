#include "transport/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/fd.h"
#include "transport/socket_address.h"

namespace forebay {

namespace {

std::vector<uint32_t> groups_of_unix_socket(int fd) {
  std::vector<uint32_t> groups(64);
  for (;;) {
    socklen_t size = groups.size() * sizeof(gid_t);
    const int rc = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
    const size_t count = size / sizeof(gid_t);
    if (rc != 0 && errno == ERANGE && count > groups.size()) {
      groups.resize(count);
      continue;
    }
    groups.resize(rc == 0 ? count : 0);
    return groups;
  }
}

constexpr uint32_t kNoGroup = 65534;

// The ids and groups that the user database gives to a user. One that it does not know belongs to
// no group that grants anything.
Caller caller_by_uid(uint32_t uid) {
  std::vector<char> text(16 * 1024);
  passwd entry{};
  passwd* found = nullptr;
  while (::getpwuid_r(uid, &entry, text.data(), text.size(), &found) == ERANGE) {
    text.resize(text.size() * 2);
  }
  Caller caller;
  caller.uid = uid;
  caller.gid = found ? found->pw_gid : kNoGroup;
  if (!found) return caller;
  int count = 64;
  caller.groups.resize(count);
  while (::getgrouplist(found->pw_name, found->pw_gid, caller.groups.data(), &count) < 0) {
    caller.groups.resize(std::max<size_t>(count, caller.groups.size() * 2));
    count = static_cast<int>(caller.groups.size());
  }
  caller.groups.resize(count);
  return caller;
}

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

void put_end(const SocketAddress& end, __be16& port, __be32* address) {
  if (end.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&end.storage);
    port = v4->sin_port;
    address[0] = v4->sin_addr.s_addr;
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&end.storage);
    port = v6->sin6_port;
    std::memcpy(address, &v6->sin6_addr, sizeof v6->sin6_addr);
  }
}

// The peer's socket is ours seen from the other side. `family` is how the peer made it: an address
// that maps IPv4 into IPv6 on our side may be plain IPv4 on its side.
Question ask_for(const SocketAddress& peer, const SocketAddress& own) {
  Question q{};
  q.header.nlmsg_len = sizeof q;
  q.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  q.header.nlmsg_flags = NLM_F_REQUEST;
  q.body.sdiag_family = peer.family();
  q.body.sdiag_protocol = IPPROTO_TCP;
  q.body.idiag_states = 1u << TCP_ESTABLISHED;
  q.body.id.idiag_cookie[0] = q.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  put_end(peer, q.body.id.idiag_sport, q.body.id.idiag_src);
  put_end(own, q.body.id.idiag_dport, q.body.id.idiag_dst);
  return q;
}

bool same_ends(const inet_diag_sockid& a, const inet_diag_sockid& b) {
  return a.idiag_sport == b.idiag_sport && a.idiag_dport == b.idiag_dport &&
         std::memcmp(a.idiag_src, b.idiag_src, sizeof a.idiag_src) == 0 &&
         std::memcmp(a.idiag_dst, b.idiag_dst, sizeof a.idiag_dst) == 0;
}

// The exact lookup may answer with a listening socket of the same port: only one whose both ends
// are the ones asked for counts, and only while it has an owner (an inode).
std::optional<uint32_t> owner_of(const Question& question) {
  Fd netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink) return std::nullopt;
  if (::send(netlink.get(), &question, sizeof question, 0) != sizeof question) return std::nullopt;
  alignas(nlmsghdr) std::array<std::byte, 8192> answer;
  const ssize_t n = ::recv(netlink.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (n < 0 || !NLMSG_OK(header, static_cast<size_t>(n)) ||
      header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
    return std::nullopt;
  }
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  if (!same_ends(found->id, question.body.id) || found->idiag_inode == 0) return std::nullopt;
  return found->idiag_uid;
}

std::optional<SocketAddress> unmap(const SocketAddress& in) {
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&in.storage);
  if (in.family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return std::nullopt;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6->sin6_port;
  std::memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  SocketAddress out;
  std::memcpy(&out.storage, &v4, sizeof v4);
  out.size = sizeof v4;
  return out;
}

SocketAddress map(const SocketAddress& in) {
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&in.storage);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4->sin_port;
  v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(v6.sin6_addr.s6_addr + 12, &v4->sin_addr, sizeof v4->sin_addr);
  SocketAddress out;
  std::memcpy(&out.storage, &v6, sizeof v6);
  out.size = sizeof v6;
  return out;
}

// Whichever family the peer's socket has.
std::optional<uint32_t> owner_of_peer(const SocketAddress& peer, const SocketAddress& own) {
  if (const auto uid = owner_of(ask_for(peer, own))) return uid;
  if (peer.family() == AF_INET) return owner_of(ask_for(map(peer), map(own)));
  const auto peer4 = unmap(peer), own4 = unmap(own);
  if (peer4 && own4) return owner_of(ask_for(*peer4, *own4));
  return std::nullopt;
}

std::string tcp_where(const SocketAddress& peer) {
  char text[INET6_ADDRSTRLEN] = "?";
  const bool v4 = peer.family() == AF_INET;
  const void* address =
      v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&peer.storage)->sin_addr)
         : &reinterpret_cast<const sockaddr_in6*>(&peer.storage)->sin6_addr;
  ::inet_ntop(peer.family(), address, text, sizeof text);
  return v4 ? fmt::format("tcp {}:{}", text, peer.port())
            : fmt::format("tcp [{}]:{}", text, peer.port());
}

}  // namespace

Peer peer_of_unix_socket(int fd) {
  Peer peer;
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid == uid_t(-1)) {
    peer.where = "unix";
    return peer;
  }
  Caller caller;
  caller.uid = who.uid;
  caller.gid = who.gid;
  caller.groups = groups_of_unix_socket(fd);
  peer.caller = std::make_shared<const Caller>(std::move(caller));
  peer.pid = who.pid;
  peer.may_speak_for_others = who.uid == 0;
  peer.where = fmt::format("unix, pid {}", who.pid);
  return peer;
}

Peer peer_of_tcp_socket(int fd) {
  Peer peer;
  SocketAddress own, other;
  own.size = other.size = sizeof own.storage;
  if (::getsockname(fd, own.get(), &own.size) != 0 ||
      ::getpeername(fd, other.get(), &other.size) != 0) {
    peer.where = "tcp";
    return peer;
  }
  peer.where = tcp_where(other);
  if (!own.loopback() || !other.loopback()) return peer;
  const auto uid = owner_of_peer(other, own);
  if (!uid) return peer;
  peer.caller = std::make_shared<const Caller>(caller_by_uid(*uid));
  return peer;
}

}  // namespace forebay
