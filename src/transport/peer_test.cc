#include "transport/peer.h"

#include <grp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>

#include "core/fd.h"
#include "transport/socket_address.h"
#include "transport/testing.h"

namespace forebay {
namespace {

constexpr uid_t kOther = 54321;  // in no user database
constexpr gid_t kGroups[] = {60001, 60002};

// A child that connects as another user, stays until its parent has looked, and ends.
class OtherUser {
 public:
  explicit OtherUser(const SocketAddress& where) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool changed = ::setgroups(2, kGroups) == 0 && ::setresgid(kOther, kOther, kOther) == 0 &&
                         ::setresuid(kOther, kOther, kOther) == 0;
    const int fd = ::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!changed || ::connect(fd, where.get(), where.size) != 0) ::_exit(1);
    char c;
    ::_exit(::recv(fd, &c, 1, 0) == 0 ? 0 : 1);
  }
  ~OtherUser() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

 private:
  pid_t pid_;
};

Fd listening(const SocketAddress& where) {
  Fd fd(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (where.family() == AF_INET6) {
    const int off = 0;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(fd.get(), where.get(), where.size) != 0 || ::listen(fd.get(), 4) != 0) return Fd();
  return fd;
}

SocketAddress bound(const Fd& fd) {
  SocketAddress out;
  out.size = sizeof out.storage;
  EXPECT_EQ(::getsockname(fd.get(), out.get(), &out.size), 0);
  return out;
}

TEST(Peer, AnotherUserOnAUnixSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  TempDir directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  const auto where = to_socket_address({Address::Kind::unix_socket, directory / "s", 0}).value();
  const Fd server = listening(where);
  ASSERT_EQ(::chmod((directory / "s").c_str(), 0666), 0);
  const OtherUser child(where);
  const Fd accepted(::accept(server.get(), nullptr, nullptr));
  const Peer peer = peer_of_unix_socket(accepted.get());
  ASSERT_TRUE(peer.caller);
  EXPECT_EQ(peer.caller->uid, kOther);
  EXPECT_EQ(peer.caller->gid, kOther);
  EXPECT_EQ(peer.caller->groups, (std::vector<uint32_t>{60001, 60002}));
  EXPECT_GT(peer.pid, 0);
  EXPECT_FALSE(peer.may_speak_for_others);
}

void expect_other_user_by_tcp(const Fd& server, const SocketAddress& connect_to) {
  const OtherUser child(connect_to);
  const Fd accepted(::accept(server.get(), nullptr, nullptr));
  const Peer peer = peer_of_tcp_socket(accepted.get());
  ASSERT_TRUE(peer.caller);
  EXPECT_EQ(peer.caller->uid, kOther);
  EXPECT_TRUE(peer.caller->groups.empty());  // unknown to the user database
  EXPECT_FALSE(peer.may_speak_for_others);
  EXPECT_EQ(peer.where.substr(0, 4), "tcp ");
}

TEST(Peer, AnotherUserOnTcp) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const Fd server = listening(to_socket_address({Address::Kind::tcp, "127.0.0.1", 0}).value());
  ASSERT_TRUE(server);
  expect_other_user_by_tcp(server, bound(server));
}

TEST(Peer, AnotherUserOnTcpByIpv6AndMapped) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const Fd server = listening(to_socket_address({Address::Kind::tcp, "::", 0}).value());
  if (!server) GTEST_SKIP() << "no IPv6 here";
  const uint16_t port = bound(server).port();
  for (const char* host : {"::1", "127.0.0.1", "::ffff:127.0.0.1"}) {
    SCOPED_TRACE(host);
    expect_other_user_by_tcp(server, to_socket_address({Address::Kind::tcp, host, port}).value());
  }
}

TEST(Peer, OurselvesByUnixAndTcp) {
  UnixWorld by_unix;
  Pairs unix_pairs(by_unix);
  const auto me = this_process_caller();
  auto pair = unix_pairs.make();
  for (const Connection* c : {pair.client.get(), pair.server.get()}) {
    EXPECT_TRUE(c->peer().caller->uid == me->uid && c->peer().caller->gid == me->gid);
    EXPECT_EQ(c->peer().pid, ::getpid());
    EXPECT_EQ(c->peer().may_speak_for_others, ::geteuid() == 0);
  }
  TcpWorld by_tcp;
  Pairs tcp_pairs(by_tcp);
  auto other = tcp_pairs.make();
  EXPECT_EQ(other.server->peer().caller->uid, me->uid);
  EXPECT_FALSE(other.server->peer().may_speak_for_others);
}

TEST(Peer, ASocketWhoseOwnerIsGoneIsUnknown) {
  const Fd server = listening(to_socket_address({Address::Kind::tcp, "127.0.0.1", 0}).value());
  const auto where = bound(server);
  Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), where.get(), where.size), 0);
  const Fd accepted(::accept(server.get(), nullptr, nullptr));
  client.reset();
  EXPECT_FALSE(peer_of_tcp_socket(accepted.get()).caller);
}

}  // namespace
}  // namespace forebay
