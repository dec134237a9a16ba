// What the arbiter and its clients do when things go wrong, and whom it believes.
#include "mpiio/arbiter.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "mpiio/arbiter_connect.h"
#include "mpiio/arbiter_wire.h"
#include "mpiio/testing.h"
#include "transport/socket_address.h"

namespace forebay::mpiio {
namespace {

using namespace std::chrono_literals;

constexpr auto kSoon = 20s;  // on a busy machine

template <class Pred>
bool eventually(Pred&& pred) {
  const Time end = SteadyClock().now() + kSoon;
  while (!pred() && SteadyClock().now() < end) std::this_thread::sleep_for(1ms);
  return pred();
}

// A plain blocking socket: somebody who does not keep to our rules.
Fd stranger(const Invitation& invitation) {
  const auto where = to_socket_address({Address::Kind::tcp, "127.0.0.1", invitation.port}).value();
  Fd fd(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), where.get(), where.size), 0);
  return fd;
}

void say(const Fd& fd, const std::string& bytes) {
  (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Reads until the other side closes; false if it does not.
bool is_closed(const Fd& fd) {
  char rest[4096];
  for (;;) {
    pollfd one{fd.get(), POLLIN, 0};
    if (::poll(&one, 1, 20000) != 1) return false;
    if (::recv(fd.get(), rest, sizeof rest, 0) <= 0) return true;
  }
}

Invitation only(Invitation invitation, const std::string& host, uint16_t port) {
  invitation.hosts = {};
  std::copy(host.begin(), host.end(), invitation.hosts[0].begin());
  invitation.port = port;
  return invitation;
}

TEST(Arbiter, FilesAreApart) {
  const auto arbiter = near_arbiter();
  const Invitation one = arbiter->open_file(), two = arbiter->open_file();
  const auto a = ArbiterClient::connect(one).value(), b = ArbiterClient::connect(two).value();
  ASSERT_TRUE(a->set(kPointer, 5));
  EXPECT_EQ(b->get(kPointer).value(), 0u);
  const auto held = a->lock(range(0, 10), LockMode::exclusive).value();
  EXPECT_TRUE(b->lock(range(0, 10), LockMode::exclusive).value());
}

TEST(Arbiter, AClosedFileTakesNobodyNew) {
  const auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  const auto client = ArbiterClient::connect(invitation).value();
  arbiter->close_file(invitation);
  EXPECT_TRUE(client->get(kPointer)) << "those that are there go on";
  EXPECT_EQ(ArbiterClient::connect(invitation).error().code(), ENOENT);
}

TEST(Arbiter, AnArbiterThatGoesFailsEveryCallAtOnce) {
  auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  const auto a = ArbiterClient::connect(invitation).value();
  const auto b = ArbiterClient::connect(invitation).value();
  const auto held = a->lock(range(0, 10), LockMode::exclusive).value();
  std::atomic<int> failed{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 2; ++i) {
    waiters.emplace_back(
        [&] { failed = b->lock(range(0, 10), LockMode::exclusive).error().code(); });
  }
  std::this_thread::sleep_for(20ms);
  arbiter.reset();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(failed, ECONNRESET);
  EXPECT_EQ(a->fetch_and_add(kPointer, 1).error().code(), ECONNRESET);
  EXPECT_EQ(a->fetch_and_add(kPointer, 1).error().code(), ECONNRESET) << "and again";
  EXPECT_FALSE(ArbiterClient::connect(invitation, 2s));
}

// A client by hand, which asks for an exclusive lock and does not wait for the answer.
BlockingSocket hasty_client(const Invitation& invitation) {
  auto socket = connect_to_arbiter(invitation, kSoon).value();
  const Asked lock{
      .call = Call::lock, .mode = LockMode::exclusive, .id = 1, .ranges = range(0, 10)};
  EXPECT_TRUE(socket.send(encode(lock), BlockingSocket::kForever));
  return socket;
}

// The arbiter takes requests in order: when it answers another one, it has had all before.
void wait_until_heard(BlockingSocket& socket) {
  EXPECT_TRUE(socket.send(encode(Asked{.call = Call::get, .id = 2}), BlockingSocket::kForever));
  EXPECT_TRUE(socket.receive(wire::FrameType::reply, BlockingSocket::kForever));
}

TEST(Arbiter, AClientThatGoesLeavesNoLock) {
  const auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  const auto client = ArbiterClient::connect(invitation).value();
  auto holder = hasty_client(invitation);
  ASSERT_TRUE(holder.receive(wire::FrameType::reply, BlockingSocket::kForever)) << "has it";
  std::atomic<bool> got{false};
  std::thread waiter([&] {
    const auto mine = client->lock(range(5, 1), LockMode::exclusive).value();
    got = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(got);
  holder.shut();
  waiter.join();
  EXPECT_TRUE(got);
  EXPECT_TRUE(eventually([&] { return arbiter->clients() == 1; }));
}

TEST(Arbiter, OneThatWaitsAndGoesIsForgotten) {
  const auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  const auto a = ArbiterClient::connect(invitation).value();
  const auto b = ArbiterClient::connect(invitation).value();
  const auto held = a->lock(range(0, 10), LockMode::shared).value();
  auto waits = hasty_client(invitation);
  wait_until_heard(waits);
  std::atomic<bool> got{false};
  std::thread reader([&] {
    const auto mine = b->lock(range(0, 10), LockMode::shared).value();
    got = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(got) << "it overtook the one that waits";
  waits.shut();
  reader.join();
  EXPECT_TRUE(got) << "while the first is held";
}

TEST(Arbiter, WhoDoesNotKnowTheKeyIsNotServed) {
  const auto arbiter = near_arbiter();
  const Invitation real = arbiter->open_file();
  Invitation wrong = real;
  wrong.key[31] ^= 1;
  EXPECT_EQ(ArbiterClient::connect(wrong).error().code(), EACCES);

  const Fd fd = stranger(real);  // takes the challenge, and guesses
  say(fd, encode(Greeting{real.file, make_nonce()}));
  say(fd, encode(Proof{}));
  EXPECT_TRUE(is_closed(fd));
  const Fd early = stranger(real);  // asks before it has proven anything
  say(early, encode(Asked{.call = Call::set, .id = 1, .a = 666}));
  EXPECT_TRUE(is_closed(early));
  EXPECT_EQ(ArbiterClient::connect(real).value()->get(kPointer).value(), 0u);
}

TEST(Arbiter, ASilentConnectionIsClosed) {
  const auto arbiter =
      Arbiter::start({.reach = Arbiter::Reach::loopback, .proof_within = 50ms}).value();
  const Invitation invitation = arbiter->open_file();
  const auto client = ArbiterClient::connect(invitation).value();
  EXPECT_TRUE(is_closed(stranger(invitation)));
  EXPECT_TRUE(client->get(kPointer)) << "one that has proven itself may be silent";
}

TEST(Arbiter, RandomBytesDoNoHarm) {
  std::mt19937_64 random(test_seed());
  const auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  const auto client = ArbiterClient::connect(invitation).value();
  for (int i = 0; i < 100; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (random() % 2) bytes.insert(0, encode(Greeting{invitation.file, make_nonce()}));
    const Fd fd = stranger(invitation);
    say(fd, bytes);
    ::shutdown(fd.get(), SHUT_WR);
    ASSERT_TRUE(is_closed(fd));
    ASSERT_EQ(client->fetch_and_add(kPointer, 1).value(), static_cast<uint64_t>(i));
  }
}

// Somebody who knows the key, and then sends requests with bytes changed.
TEST(Arbiter, BrokenRequestsOfAProvenClientEndItsConnectionOnly) {
  std::mt19937_64 random(test_seed());
  const auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  const auto client = ArbiterClient::connect(invitation).value();
  for (int i = 0; i < 200; ++i) {
    auto bad = connect_to_arbiter(invitation, kSoon).value();
    for (int k = 0; k < 5; ++k) {
      std::string frame = encode(Asked{.call = static_cast<Call>(random() % 6),
                                       .mode = static_cast<LockMode>(random() % 2),
                                       .slot = static_cast<Slot>(1 + random() % (kSlots - 1)),
                                       .id = random() % 4,
                                       .a = random() % 4,
                                       .ranges = range(random() % 100, random() % 100)});
      if (random() % 2) frame[random() % frame.size()] ^= static_cast<char>(1 << random() % 8);
      if (!bad.send(frame, BlockingSocket::kForever)) break;
    }
  }
  ASSERT_TRUE(eventually([&] { return arbiter->clients() == 1; }));
  ASSERT_TRUE(client->lock(range(0, kMaxOffset), LockMode::exclusive)) << "nothing is left";
}

TEST(ArbiterClient, NobodyThereIsSaidSoon) {
  auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  arbiter.reset();
  const Time begin = SteadyClock().now();
  EXPECT_EQ(ArbiterClient::connect(invitation).error().code(), ECONNREFUSED);
  EXPECT_LT(SteadyClock().now() - begin, 10s);
  EXPECT_EQ(ArbiterClient::connect(Invitation()).error().code(), EINVAL) << "no address at all";
}

// A listener that takes connections and says nothing, or something else.
struct Mute {
  Mute() {
    const auto where = to_socket_address({Address::Kind::tcp, "127.0.0.1", 0}).value();
    EXPECT_EQ(::bind(fd.get(), where.get(), where.size), 0);
    EXPECT_EQ(::listen(fd.get(), 16), 0);
    SocketAddress bound;
    bound.size = sizeof bound.storage;
    EXPECT_EQ(::getsockname(fd.get(), bound.get(), &bound.size), 0);
    port = bound.port();
  }
  Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  uint16_t port = 0;
};

TEST(ArbiterClient, AnAddressThatDoesNotAnswerIsGivenUp) {
  const Mute mute;
  const Time begin = SteadyClock().now();
  const Invitation nobody = only(Invitation(), "127.0.0.1", mute.port);
  EXPECT_EQ(ArbiterClient::connect(nobody, 300ms).error().code(), ETIMEDOUT);
  EXPECT_LT(SteadyClock().now() - begin, 10s);
}

TEST(ArbiterClient, AnotherServerIsNotTakenForTheArbiter) {
  const auto arbiter = near_arbiter(), other = near_arbiter();
  const Invitation meant = arbiter->open_file(), found = other->open_file();
  EXPECT_EQ(ArbiterClient::connect(only(meant, "127.0.0.1", found.port)).error().code(), EACCES);
}

TEST(ArbiterClient, AddressesThatLeadNowhereArePassedOver) {
  const auto arbiter = near_arbiter();
  Invitation invitation = arbiter->open_file();
  invitation.hosts[3] = invitation.hosts[0];
  const auto put = [&](size_t i, const std::string& host) {
    invitation.hosts[i] = {};
    std::copy(host.begin(), host.end(), invitation.hosts[i].begin());
  };
  put(0, "192.0.2.1");  // reserved for documentation: nobody answers
  put(1, "not an address");
  put(2, "2001:db8::1");
  EXPECT_TRUE(ArbiterClient::connect(invitation));
}

TEST(Arbiter, EveryAddressOfTheInvitationLeadsToIt) {
  const auto arbiter = Arbiter::start().value();
  const Invitation invitation = arbiter->open_file();
  int tried = 0;
  for (const auto& host : invitation.hosts) {
    const std::string text(host.data());
    if (text.empty()) continue;
    ++tried;
    EXPECT_TRUE(ArbiterClient::connect(only(invitation, text, invitation.port))) << text;
  }
  EXPECT_GE(tried, 1);
  EXPECT_TRUE(ArbiterClient::connect(invitation));
}

// The affinity of this process's thread of that name; none if there is no such thread.
std::optional<int> cores_of_thread(const std::string& name) {
  DIR* tasks = ::opendir("/proc/self/task");
  std::optional<int> cores;
  while (const dirent* entry = ::readdir(tasks)) {
    std::string comm;
    std::getline(std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm"), comm);
    cpu_set_t set;
    if (comm == name && ::sched_getaffinity(std::atoi(entry->d_name), sizeof set, &set) == 0) {
      cores = CPU_COUNT(&set);
    }
  }
  ::closedir(tasks);
  return cores;
}

TEST(Arbiter, ItsThreadIsNotBoundToItsMakersCore) {
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "this process may use one core only";
  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const auto arbiter = near_arbiter();
  ASSERT_EQ(::sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_TRUE(eventually([&] { return cores_of_thread("forebay-arbiter").value_or(0) > 1; }));
}

TEST(Arbiter, ManyRangesAreOneLock) {
  const auto arbiter = near_arbiter();
  const Invitation invitation = arbiter->open_file();
  const auto a = ArbiterClient::connect(invitation).value();
  const auto b = ArbiterClient::connect(invitation).value();
  // Interleaved views of a billion pieces each are held side by side.
  const auto view = [](uint64_t rank) {
    return Extents::make({ext(rank * 8, 8)}, {{1'000'000'000, 16}}).value();
  };
  const auto even = a->lock(view(0), LockMode::exclusive).value();
  const auto odd = b->lock(view(1), LockMode::exclusive).value();
  EXPECT_TRUE(even && odd);
}

TEST(Arbiter, MayHaveAsManyConnectionsAsTheProcessIsAllowed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 200;
  if (before.rlim_max <= low.rlim_cur) GTEST_SKIP() << "it is allowed few";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto arbiter = Arbiter::start();
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(arbiter);
  EXPECT_GT(now.rlim_cur, low.rlim_cur);
}

}  // namespace
}  // namespace forebay::mpiio
