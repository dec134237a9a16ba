// Sockets whose ends prove a key. What any connection must do, transport_test runs over them too.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "transport/arrival.h"
#include "transport/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

AuthKeyRef a_key(char c) {
  return std::make_shared<const AuthKey>(std::string(32, c), std::string("key ") + c);
}

// Both ends, as a test wants them.
class KeyedEnds {
 public:
  KeyedEnds(SocketOptions server, SocketOptions client) : server_(server), client_(client) {
    listener_ = server_
                    .listen({Address::Kind::tcp, "127.0.0.1", 0}, world.loop(),
                            [this](std::unique_ptr<Connection> c) { accepted = std::move(c); })
                    .value();
  }
  TcpWorld world;  // for its loop
  std::unique_ptr<Connection> accepted, connected;
  std::optional<Error> error;

  void connect(Duration limit = 5s) {
    client_.connect(listener_->address(), world.loop(), limit, [this](auto made) {
      if (made)
        connected = std::move(*made);
      else
        error = made.error();
    });
    world.run_until([this] { return connected || error; });
  }
  const Address& address() const { return listener_->address(); }

 private:
  SocketTransport server_, client_;
  std::unique_ptr<Listener> listener_;
};

// A socket that says what a test wants.
Fd raw_client(const Address& address) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}
bool is_closed(int fd) {
  char c;
  return ::recv(fd, &c, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

TEST(KeyedTransport, TheCallerIsWhoItSays) {
  for (const KeyRole role : {KeyRole::client, KeyRole::server}) {
    KeyedEnds ends({.key = a_key('a')}, {.key = a_key('a'), .role = role});
    ends.connect();
    ASSERT_TRUE(ends.connected) << ends.error->message();
    ASSERT_TRUE(ends.world.run_until([&] { return ends.accepted != nullptr; }));
    const Peer& peer = ends.accepted->peer();
    EXPECT_TRUE(peer.caller->same_identity(*this_process_caller()));
    EXPECT_EQ(peer.proof, role == KeyRole::server ? Peer::Proof::server : Peer::Proof::client);
    EXPECT_EQ(peer.may_speak_for_others, role == KeyRole::server || peer.caller->uid == 0);
  }
}

TEST(KeyedTransport, AnotherKeyIsEacces) {
  KeyedEnds ends({.key = a_key('a')}, {.key = a_key('b')});
  ends.connect();
  ASSERT_TRUE(ends.error);
  EXPECT_EQ(ends.error->code(), EACCES);
  EXPECT_NE(ends.error->what().find("another key than key b"), std::string::npos)
      << ends.error->what();
  EXPECT_FALSE(ends.accepted);
}

TEST(KeyedTransport, AServerWithoutAKeyIsALostConnection) {
  KeyedEnds ends({}, {.key = a_key('b')});
  Recorder server;
  const std::function<void()> serve = [&] {
    if (ends.accepted) return ends.accepted->start(server);
    ends.world.loop().after(1ms, [&] { serve(); });
  };
  serve();
  ends.connect();
  ASSERT_TRUE(ends.error);
  EXPECT_EQ(ends.error->code(), ECONNRESET) << ends.error->message();
  ASSERT_TRUE(server.closed);
  EXPECT_EQ(server.closed->code(), EPROTO) << "to it, this is no frame";
}

TEST(KeyedTransport, WithoutAKeyFromThisMachineTheKernelVouches) {
  KeyedEnds ends({.key = a_key('a')}, {});
  ends.connect();
  ASSERT_TRUE(ends.connected);
  Recorder client, server;
  ends.connected->start(client);
  ends.connected->send(head_of("hello"));
  ASSERT_TRUE(ends.world.run_until([&] { return ends.accepted != nullptr; }));
  EXPECT_EQ(ends.accepted->peer().caller->uid, ::geteuid());
  EXPECT_EQ(ends.accepted->peer().proof, Peer::Proof::none);
  ends.accepted->start(server);
  ASSERT_TRUE(ends.world.run_until([&] { return !server.frames.empty(); }));
  EXPECT_EQ(server.frames[0].message, "hello");
}

TEST(KeyedTransport, WhoeverSaysNothingOrHalfIsClosed) {
  KeyedEnds ends({.key = a_key('a'), .key_limit = 50ms}, {});
  std::vector<Fd> sockets;
  for (const char* said : {"", "K", "KEYEDFB1", "KEYEDFB1\1"}) {
    sockets.push_back(raw_client(ends.address()));
    ASSERT_EQ(::send(sockets.back().get(), said, strlen(said), 0), ssize_t(strlen(said)));
  }
  sockets.push_back(raw_client(ends.address()));
  const std::string hello = KeyAsker(a_key('a'), KeyRole::client, this_process_caller()).hello();
  ::send(sockets.back().get(), hello.data(), hello.size(), 0);  // and no answer
  std::string challenge(kKeyChallenge, '\0');
  ends.world.run_for(20ms);
  EXPECT_EQ(::recv(sockets.back().get(), challenge.data(), challenge.size(), MSG_WAITALL),
            ssize_t(kKeyChallenge));
  ends.world.run_for(100ms);
  for (const Fd& fd : sockets) EXPECT_TRUE(is_closed(fd.get()));
  EXPECT_FALSE(ends.accepted);
}

TEST(KeyedTransport, AWrongAnswerIsClosedAtOnce) {
  KeyedEnds ends({.key = a_key('a')}, {});
  const Fd fd = raw_client(ends.address());
  const std::string hello = KeyAsker(a_key('a'), KeyRole::client, this_process_caller()).hello() +
                            std::string(kKeyAnswer, 'x');
  ::send(fd.get(), hello.data(), hello.size(), 0);
  std::string challenge(kKeyChallenge, '\0');
  ends.world.run_for(20ms);
  EXPECT_EQ(::recv(fd.get(), challenge.data(), challenge.size(), MSG_WAITALL),
            ssize_t(kKeyChallenge));
  EXPECT_TRUE(is_closed(fd.get()));
  EXPECT_FALSE(ends.accepted);
}

TEST(KeyedTransport, TooManyWaitNoLonger) {
  KeyedEnds ends({.key = a_key('a')}, {});
  std::vector<Fd> sockets;
  for (size_t i = 0; i < Arrivals::kMost + 5; ++i) {
    sockets.push_back(raw_client(ends.address()));
    ends.world.run_for(100us);
  }
  ends.world.run_for(20ms);
  EXPECT_TRUE(is_closed(sockets.back().get()));
  EXPECT_FALSE(is_closed(sockets.front().get()));
}

// A frame that somebody else has put into the stream ends the connection, unheard.
TEST(KeyedTransport, AForgedFrameIsNotDelivered) {
  KeyedEnds ends({.key = a_key('a')}, {.key = a_key('a')});
  ends.connect();
  ASSERT_TRUE(ends.connected);
  ASSERT_TRUE(ends.world.run_until([&] { return ends.accepted != nullptr; }));
  Recorder client, server;
  ends.connected->start(client);
  ends.accepted->start(server);
  ends.connected->send(head_of("first"));
  ASSERT_TRUE(ends.world.run_until([&] { return server.frames.size() == 1; }));
  const std::string forged = head_of("forged") + std::string(FrameSeal::kTagBytes, '\0');
  ASSERT_EQ(::send(ends.connected->descriptor(), forged.data(), forged.size(), 0),
            ssize_t(forged.size()));
  ASSERT_TRUE(ends.world.run_until([&] { return server.closed.has_value(); }));
  EXPECT_EQ(server.closed->code(), EBADMSG);
  EXPECT_EQ(server.frames.size(), 1u);
}

TEST(KeyedTransport, WithAKeyAnyAddressIsListenedOn) {
  TcpWorld world;
  SocketTransport with({.key = a_key('a')}), without;
  const Address any{Address::Kind::tcp, "0.0.0.0", 0};
  EXPECT_TRUE(with.listen(any, world.loop(), [](auto) {}));
  const auto refused = without.listen(any, world.loop(), [](auto) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), EPERM);
  EXPECT_NE(refused.error().what().find("forebay key make"), std::string::npos);
}

}  // namespace
}  // namespace forebay
