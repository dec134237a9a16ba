// What only sockets do: bytes from strangers, files in the way, loops in other threads.
#include "transport/socket_transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <future>

#include "core/fd.h"
#include "loop/loop_thread.h"
#include "transport/socket_address.h"
#include "transport/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

// A plain blocking socket: a peer that does not keep to our rules.
Fd stranger(const Address& address) {
  const auto where = to_socket_address(address).value();
  Fd fd(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), where.get(), where.size), 0);
  return fd;
}

struct Accepting {
  explicit Accepting(World& world) {
    listener = world.server()
                   .listen(world.address(), world.loop(),
                           [this](std::unique_ptr<Connection> c) {
                             connection = std::move(c);
                             connection->start(recorder);
                           })
                   .value();
  }
  Recorder recorder;
  std::unique_ptr<Connection> connection;
  std::unique_ptr<Listener> listener;
};

template <class W>
class SocketTest : public testing::Test {
 protected:
  W world;
};
using SocketWorlds = testing::Types<UnixWorld, SharedWorld, TcpWorld>;
TYPED_TEST_SUITE(SocketTest, SocketWorlds);

TYPED_TEST(SocketTest, GarbageIsAProtocolError) {
  Accepting at(this->world);
  const Fd fd = stranger(at.listener->address());
  const std::string garbage = "GET / HTTP/1.1\r\nHost: forebay\r\n\r\n";
  ASSERT_EQ(::send(fd.get(), garbage.data(), garbage.size(), 0), ssize_t(garbage.size()));
  ASSERT_TRUE(this->world.run_until([&] { return at.recorder.closed.has_value(); }));
  EXPECT_EQ(at.recorder.closed->code(), EPROTO);
  char c;
  EXPECT_LE(::recv(fd.get(), &c, 1, 0), 0);  // and the stranger is cut off
}

TYPED_TEST(SocketTest, SizesBeyondTheLimitsAreRefusedAtTheHeader) {
  for (const size_t at_byte : {11u, 15u}) {
    Accepting at(this->world);
    const Fd fd = stranger(at.listener->address());
    std::string head = head_of("", 0);
    head[at_byte] = '\x40';
    ASSERT_EQ(::send(fd.get(), head.data(), head.size(), 0), ssize_t(head.size()));
    ASSERT_TRUE(this->world.run_until([&] { return at.recorder.closed.has_value(); }));
    EXPECT_EQ(at.recorder.closed->code(), EPROTO);
  }
}

TYPED_TEST(SocketTest, BytesMayDripOneByOne) {
  Accepting at(this->world);
  const Fd fd = stranger(at.listener->address());
  std::string payload = "payload of some size";
  const std::string bytes = head_of("first", payload.size()) + payload + head_of("second");
  for (const char c : bytes) {
    ASSERT_EQ(::send(fd.get(), &c, 1, 0), 1);
    this->world.run_for(200us);
  }
  ASSERT_TRUE(this->world.run_until([&] { return at.recorder.frames.size() == 2; }));
  EXPECT_EQ(at.recorder.frames[0].payload, payload);
}

TYPED_TEST(SocketTest, DataWithTheEndRightBehindIsDeliveredThenClosed) {
  for (int i = 0; i < 20; ++i) {
    Accepting at(this->world);
    {
      const Fd fd = stranger(at.listener->address());
      const std::string bytes = head_of("last words");
      ASSERT_EQ(::send(fd.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
    }
    ASSERT_TRUE(this->world.run_until([&] { return at.recorder.closed.has_value(); }));
    EXPECT_EQ(at.recorder.frames.size(), 1u);
    EXPECT_EQ(at.recorder.closed->code(), ECONNRESET);
  }
}

TYPED_TEST(SocketTest, ATruncatedPayloadIsNeverDelivered) {
  Accepting at(this->world);
  {
    const Fd fd = stranger(at.listener->address());
    const std::string bytes = head_of("m", 1000) + std::string(999, 'p');
    ASSERT_EQ(::send(fd.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
  }
  ASSERT_TRUE(this->world.run_until([&] { return at.recorder.closed.has_value(); }));
  EXPECT_TRUE(at.recorder.frames.empty());
}

TYPED_TEST(SocketTest, DescriptorsAreClosedAtTheEndAndOnExec) {
  const auto open_descriptors = [] {
    size_t n = 0;
    for (int fd = 3; fd < 1024; ++fd) {
      const int flags = ::fcntl(fd, F_GETFD);
      if (flags < 0) continue;
      struct stat st;
      EXPECT_TRUE(::fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode) || (flags & FD_CLOEXEC)) << fd;
      ++n;
    }
    return n;
  };
  Pairs(this->world).make();  // the loop's own descriptors come with the first connection
  this->world.run_for(1ms);
  const size_t before = open_descriptors();
  {
    Pairs pairs(this->world);
    auto pair = pairs.make();
    Recorder a, b;
    std::string payload(16_MiB, 'x');
    pair.client->start(a);
    pair.client->send(head_of("m", payload.size()), Memory::of(as_bytes(payload)));
    EXPECT_GT(open_descriptors(), before);
  }
  this->world.run_for(1ms);
  EXPECT_EQ(open_descriptors(), before);
}

TYPED_TEST(SocketTest, OutOfDescriptorsPausesAcceptingAndRecovers) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself needs descriptors to check a pointer";
#endif
  Accepting at(this->world);
  const Fd fd = stranger(at.listener->address());
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  std::vector<Fd> fill;
  for (;;) {
    Fd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(one);
    const int number = one.get();
    fill.push_back(std::move(one));
    if (number > 100) break;
  }
  rlimit tight = old;
  tight.rlim_cur = fill.back().get() + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  this->world.run_until([&] { return at.connection != nullptr; }, 50ms);
  EXPECT_FALSE(at.connection);
  fill.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_TRUE(this->world.run_until([&] { return at.connection != nullptr; }, 5s));
}

// Frames flow while a connection goes to and fro between two loop threads.
TYPED_TEST(SocketTest, MovesBetweenLoopThreadsWithBytesInFlight) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  EpollLoop lobby, worker;
  Recorder at_server(seed), at_client(seed);
  std::unique_ptr<Connection> server, client;
  std::unique_ptr<Listener> listener;
  constexpr size_t kFrames = 300;
  std::vector<TestFrame> expected;
  for (size_t i = 0; i < kFrames; ++i) {
    expected.push_back({std::to_string(i), random_bytes(random, random() % 30000)});
  }
  std::promise<void> all;
  bool moving = false;
  std::function<void(Loop&, Loop&)> move = [&](Loop& from, Loop& to) {
    from.post([&, to = &to] {
      Connection::move(std::move(server), *to, [&, to](std::unique_ptr<Connection> c) {
        EXPECT_TRUE(to->on_loop());
        EXPECT_EQ(&c->loop(), to);
        moving = false;
        server = std::move(c);
        server->start(at_server);
      });
    });
  };
  at_server.on_frame = [&](const TestFrame&) {
    EXPECT_TRUE(server->loop().on_loop());
    if (at_server.frames.size() == kFrames) return all.set_value();
    if (!std::exchange(moving, true))
      &server->loop() == &lobby ? move(lobby, worker) : move(worker, lobby);
  };
  std::optional<LoopThread> lobby_thread(std::in_place, lobby, "lobby");
  std::optional<LoopThread> worker_thread(std::in_place, worker, "worker");
  lobby.post([&] {
    const auto accept = [&](std::unique_ptr<Connection> c) {
      server = std::move(c);
      server->start(at_server);
    };
    listener = this->world.server().listen(this->world.address(), lobby, accept).value();
    this->world.client().connect(listener->address(), lobby, 5s, [&](auto c) {
      client = std::move(*c);
      client->start(at_client);
      for (auto& f : expected) {
        client->send(head_of(f.message, f.payload.size()), Memory::of(as_bytes(f.payload)));
      }
    });
  });
  EXPECT_EQ(all.get_future().wait_for(30s), std::future_status::ready);
  worker_thread.reset();
  lobby_thread.reset();
  EXPECT_TRUE(at_server.frames == expected);
}

TYPED_TEST(SocketTest, ALoopDestroyedDuringAConnectDropsIt) {
  Accepting at(this->world);
  auto loop = std::make_unique<EpollLoop>();
  auto held = std::make_shared<int>();
  this->world.client().connect(at.listener->address(), *loop, 5s, [held](auto) { ADD_FAILURE(); });
  loop.reset();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(UnixListener, ReplacesAStaleFileAndRemovesItsOwn) {
  UnixWorld world;
  const Address address = world.address();
  {
    const auto where = to_socket_address(address).value();
    const Fd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(dead.get(), where.get(), where.size), 0);
  }
  auto listener = world.server().listen(address, world.loop(), [](auto) {});
  ASSERT_TRUE(listener) << listener.error().message();
  struct stat st;
  ASSERT_EQ(::stat(address.host.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0666u);
  listener->reset();
  EXPECT_NE(::stat(address.host.c_str(), &st), 0);
}

TEST(UnixListener, LeavesTheFileOfASuccessor) {
  UnixWorld world;
  const Address address = world.address();
  auto first = world.server().listen(address, world.loop(), [](auto) {});
  ASSERT_TRUE(first);
  ASSERT_EQ(::unlink(address.host.c_str()), 0);
  auto second = world.server().listen(address, world.loop(), [](auto) {});
  ASSERT_TRUE(second);
  first->reset();
  EXPECT_EQ(::access(address.host.c_str(), F_OK), 0);
}

TEST(UnixListener, NeverReplacesAnythingElse) {
  UnixWorld world;
  const Address address = world.address();
  const Fd file(::open(address.host.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  auto listener = world.server().listen(address, world.loop(), [](auto) {});
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code(), EADDRINUSE);
  EXPECT_EQ(::access(address.host.c_str(), F_OK), 0);
}

TEST(UnixListener, TheModeOfTheFileIsAnOption) {
  UnixWorld world;
  const Address address = world.address();
  SocketOptions options;
  options.unix_mode = 0600;
  auto listener = SocketTransport(options).listen(address, world.loop(), [](auto) {});
  struct stat st;
  ASSERT_EQ(::stat(address.host.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(UnixListener, AFullBacklogIsWaitedForUntilTheTimeout) {
  UnixWorld world;
  const Address address = world.address();
  const auto where = to_socket_address(address).value();
  const Fd server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(server.get(), where.get(), where.size), 0);
  ASSERT_EQ(::listen(server.get(), 0), 0);
  const Fd filler = stranger(address);
  std::optional<Error> error;
  world.client().connect(address, world.loop(), 30ms,
                         [&](auto c) { error = std::move(c).error(); });
  ASSERT_TRUE(world.run_until([&] { return error.has_value(); }));
  EXPECT_EQ(error->code(), ETIMEDOUT);
  std::unique_ptr<Connection> connected;
  world.client().connect(address, world.loop(), 5s, [&](auto c) { connected = std::move(*c); });
  world.run_for(5ms);
  const Fd accepted(::accept(server.get(), nullptr, nullptr));
  EXPECT_TRUE(world.run_until([&] { return connected != nullptr; }));
}

TEST(TcpListener, BindsAnywhereIfPeersProveThemselves) {
  EpollLoop loop;
  SocketTransport transport({.peers_prove_themselves = true});
  EXPECT_TRUE(transport.listen({Address::Kind::tcp, "0.0.0.0", 0}, loop, [](auto) {}));
}

TEST(TcpListener, BindsToLoopbackOnly) {
  TcpWorld world;
  for (const char* host : {"0.0.0.0", "10.1.2.3", "::"}) {
    auto listener = world.server().listen({Address::Kind::tcp, host, 0}, world.loop(), [](auto) {});
    ASSERT_FALSE(listener);
    EXPECT_EQ(listener.error().code(), EPERM);
    EXPECT_NE(listener.error().what().find("loopback"), std::string::npos);
  }
  for (const char* host : {"127.0.0.1", "localhost", "127.1.2.3"}) {
    auto listener = world.server().listen({Address::Kind::tcp, host, 0}, world.loop(), [](auto) {});
    ASSERT_TRUE(listener) << listener.error().message();
    EXPECT_NE((*listener)->address().port, 0);
  }
  auto named =
      world.server().listen({Address::Kind::tcp, "example.org", 0}, world.loop(), [](auto) {});
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code(), EINVAL);
}

TEST(TcpConnect, NoAnswerIsATimeout) {
  TcpWorld world;
  // A listener that never accepts, with its backlog full: the kernel drops further SYNs.
  const Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  ASSERT_EQ(::bind(server.get(), reinterpret_cast<sockaddr*>(&where), size), 0);
  ASSERT_EQ(::listen(server.get(), 0), 0);
  ASSERT_EQ(::getsockname(server.get(), reinterpret_cast<sockaddr*>(&where), &size), 0);
  const Address address{Address::Kind::tcp, "127.0.0.1", ntohs(where.sin_port)};
  std::vector<std::unique_ptr<Connection>> connected;
  std::optional<Error> error;
  for (int i = 0; i < 8; ++i) {
    world.client().connect(address, world.loop(), 200ms, [&](auto c) {
      if (c) {
        connected.push_back(std::move(*c));
      } else {
        error = std::move(c).error();
      }
    });
  }
  ASSERT_TRUE(world.run_until([&] { return error.has_value(); }));
  EXPECT_EQ(error->code(), ETIMEDOUT);
  EXPECT_NE(error->what().find(address.text()), std::string::npos);
}

TEST(TcpConnect, SocketsAreTuned) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketOptions options;
  options.tcp_dead_after = 20s;
  tune_socket(fd.get(), Address::Kind::tcp, options);
  const auto get = [&](int level, int option) {
    int value = -1;
    socklen_t size = sizeof value;
    ::getsockopt(fd.get(), level, option, &value, &size);
    return value;
  };
  EXPECT_EQ(get(IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(get(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(get(IPPROTO_TCP, TCP_KEEPIDLE), 10);
  EXPECT_EQ(get(IPPROTO_TCP, TCP_USER_TIMEOUT), 20000);
}

}  // namespace
}  // namespace forebay
