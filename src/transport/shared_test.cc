// Shared memory: the rings by themselves, against a queue of bytes and against a peer that lies;
// and what a server takes for an offer.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "transport/shared_offer.h"
#include "transport/shared_region.h"
#include "transport/testing.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

struct RingPair {
  explicit RingPair(size_t size = 4096) : space(size), writer(state, space), reader(state, space) {}
  RingState state{};
  std::vector<std::byte> space;
  RingWriter writer;
  RingReader reader;
};

iovec piece(std::string& s, size_t from = 0) {
  return {s.data() + from, s.size() - from};
}

TEST(SharedRing, CarriesBytesInOrderThroughAnyPieces) {
  std::mt19937_64 random(test_seed());
  RingPair ring;
  std::string put, got;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2) {
      std::string a = random_bytes(random, random() % 1500),
                  b = random_bytes(random, random() % 3000);
      const iovec pieces[] = {piece(a), piece(b)};
      const ssize_t n = ring.writer.put(pieces);
      if (n < 0) {
        ASSERT_TRUE(errno == EAGAIN && (!ring.writer.has_room() || a.size() + b.size() == 0));
        continue;
      }
      put += (a + b).substr(0, static_cast<size_t>(n));
    } else {
      std::string a(random() % 900, 0), b(random() % 2500, 0);
      const iovec pieces[] = {piece(a), piece(b)};
      const ssize_t n = ring.reader.take(pieces);
      if (n > 0) got += (a + b).substr(0, static_cast<size_t>(n));
    }
  }
  ASSERT_EQ(got, put.substr(0, got.size()));
  EXPECT_LE(put.size() - got.size(), 4096u);
}

TEST(SharedRing, CarriesPostsBesideItsBytes) {
  RingPair ring;
  EXPECT_FALSE(ring.reader.has_posts());
  EXPECT_TRUE(ring.reader.rest());
  ring.writer.post(4);
  EXPECT_TRUE(ring.writer.must_ring()) << "the reader sleeps";
  ring.writer.post(4 | 1);
  EXPECT_FALSE(ring.writer.must_ring());
  EXPECT_FALSE(ring.reader.rest());
  EXPECT_EQ(ring.reader.take_posts(), 5u);
  EXPECT_EQ(ring.reader.take_posts(), 0u);
  EXPECT_FALSE(ring.reader.has_bytes());
}

TEST(SharedRing, WhoeverRestsIsRung) {
  RingPair ring;
  std::string text = "text", out(10, 0);
  const iovec in_piece[] = {piece(text)}, out_piece[] = {piece(out)};
  EXPECT_TRUE(ring.reader.rest());
  EXPECT_EQ(ring.writer.put(in_piece), 4);
  EXPECT_TRUE(ring.writer.must_ring());
  EXPECT_FALSE(ring.writer.must_ring()) << "once is enough";
  EXPECT_FALSE(ring.reader.rest()) << "there are bytes";
  EXPECT_EQ(ring.reader.take(out_piece), 4);
  std::string full(4096, 'x');
  const iovec full_piece[] = {piece(full)};
  EXPECT_EQ(ring.writer.put(full_piece), 4096);
  EXPECT_TRUE(ring.writer.rest());
  EXPECT_EQ(ring.reader.take(out_piece), 10);
  EXPECT_TRUE(ring.reader.must_ring());
}

TEST(SharedRing, AnImpossiblePlaceIsAnErrorNotAnAddress) {
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 10000; ++i) {
    RingPair ring;
    std::string text = random_bytes(random, 1 + random() % 4096), out(4096, 0);
    const iovec in_piece[] = {piece(text)}, out_piece[] = {piece(out)};
    ring.writer.put(in_piece);
    const uint64_t lie = random() % 3 ? random() : random() % 10000;
    (random() % 2 ? ring.state.written : ring.state.taken).store(lie);
    for (int k = 0; k < 4; ++k) {
      EXPECT_LE(ring.writer.put(in_piece), 4096);
      EXPECT_LE(ring.reader.take(out_piece), 4096);
    }
  }
}

TEST(SharedRing, TwoThreads) {
  RingPair ring(8192);
  std::mt19937_64 random(test_seed());
  const std::string all = random_bytes(random, 4_MiB);
  std::thread writer([&] {
    std::string bytes = all;
    for (size_t at = 0; at < bytes.size();) {
      const iovec rest[] = {piece(bytes, at)};
      const ssize_t n = ring.writer.put(rest);
      if (n > 0)
        at += static_cast<size_t>(n);
      else
        std::this_thread::yield();
    }
  });
  std::string got;
  while (got.size() < all.size()) {
    std::string part(5000, 0);
    const iovec to[] = {piece(part)};
    const ssize_t n = ring.reader.take(to);
    if (n > 0)
      got.append(part, 0, static_cast<size_t>(n));
    else
      std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(got, all);
}

// ---- Regions ----

Fd memory(uint64_t size, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedRegion, IsSeenByBothAndCannotShrink) {
  const SharedRegion::Layout layout{64 << 10, 1 << 20};
  auto made = SharedRegion::create(layout).value();
  auto seen = SharedRegion::adopt(Fd(::dup(made->descriptor())), layout).value();
  made->area()[4711] = std::byte{42};
  EXPECT_EQ(seen->area()[4711], std::byte{42});
  EXPECT_NE(::ftruncate(made->descriptor(), 4096), 0);
}

TEST(SharedRegion, WhatCouldHurtIsRefused) {
  const SharedRegion::Layout layout{64 << 10, 1 << 20};
  EXPECT_FALSE(SharedRegion::adopt(memory(layout.bytes(), 0), layout));
  EXPECT_FALSE(SharedRegion::adopt(memory(layout.bytes() - 4096, F_SEAL_SHRINK), layout));
  EXPECT_TRUE(SharedRegion::adopt(memory(layout.bytes(), F_SEAL_SHRINK), layout));
  EXPECT_FALSE(SharedRegion::adopt(memory(layout.bytes(), F_SEAL_SHRINK), {3000, 1 << 20}));
  EXPECT_FALSE(SharedRegion::adopt(memory(layout.bytes(), F_SEAL_SHRINK), {64 << 10, 1}));
  TempDir directory;
  Fd file(::open((directory / "f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(layout.bytes())), 0);
  EXPECT_FALSE(SharedRegion::adopt(std::move(file), layout)) << "a file can shrink";
}

TEST(SharedRegion, HugePagesThatMayNotBeThereAreRefused) {
  SharedRegion::Layout layout{64 << 10, 0};
  layout.area = (2 << 20) - layout.bytes();
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd || ::ftruncate(fd.get(), 2 << 20) != 0) GTEST_SKIP() << "no huge pages in this kernel";
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(SharedRegion::adopt(std::move(fd), layout));
}

// ---- Connections ----

TEST(SharedConnection, BothEndsHaveTheSameMemory) {
  SharedWorld world;
  Pairs pairs(world);
  auto pair = pairs.make();
  ASSERT_TRUE(pair.client->shared() && pair.server->shared());
  pair.client->shared()->area()[77] = std::byte{7};
  EXPECT_EQ(pair.server->shared()->area()[77], std::byte{7});
}

TEST(SharedConnection, APlainClientIsServedWithout) {
  UnixWorld world;
  Pairs pairs(world);
  auto pair = pairs.make();
  EXPECT_FALSE(pair.client->shared());
  EXPECT_FALSE(pair.server->shared());
}

TEST(SharedConnection, AnAreaTooLargeIsRefusedAndTheConnectionGoesOn) {
  struct Small final : SocketWorld {
    Small() : SocketWorld({.shared_area = 1 << 20, .max_shared_area = 64 << 10}) {}
    TempDir directory;
    Address address() override { return {Address::Kind::unix_socket, directory / "s", 0}; }
  } world;
  Pairs pairs(world);
  auto pair = pairs.make();
  EXPECT_FALSE(pair.client->shared());
  Recorder at_server, at_client;
  pair.server->start(at_server);
  pair.client->start(at_client);
  pair.client->send(head_of("message", 0));
  EXPECT_TRUE(world.run_until([&] { return at_server.frames.size() == 1; }));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space

// A client that offers what is no memory can bring a server to close it where it is, if there is no
// thread to be had, but not to an end.
TEST(SharedConnection, WithoutAThreadToCloseWhatIsNoMemory) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    pthread_attr_t large;  // none of the stacks that threads before have left will do
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, 64_MiB);
    ::pthread_setattr_default_np(&large);
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    rlimit limit;
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + 1_MiB;
    ::setrlimit(RLIMIT_AS, &limit);
    for (int i = 0; i < 20; ++i) {  // more than there may be such threads
      const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      shared::close_elsewhere(Fd(fd));
      if (::fcntl(fd, F_GETFD) >= 0) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

#endif

TEST(SharedConnection, OffersThatLieCloseTheConnection) {
  std::mt19937_64 random(test_seed());
  SharedWorld world;
  Pairs pairs(world);
  for (int i = 0; i < 50; ++i) {
    auto accepted = pairs.make();  // a good one first, so that the next is what we make by hand
    shared::Offer offer;
    offer.ring = random() % 2 ? 64 << 10 : static_cast<uint32_t>(random());
    offer.area = random() % 2 ? 4096 : random();
    if (random() % 4 == 0) offer.magic[3] = 'x';
    const Fd fd = memory(4096 * (random() % 100), random() % 2 ? F_SEAL_SHRINK : 0);
    Fd raw(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    strncpy(to.sun_path, pairs.listener().address().host.c_str(), sizeof to.sun_path - 1);
    ASSERT_EQ(::connect(raw.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    const size_t size = random() % 3 ? sizeof offer : random() % sizeof offer + 1;
    ASSERT_TRUE(shared::send_with(raw.get(), &offer, size,
                                  {random() % 4 ? fd.get() : -1, random() % 4 ? -1 : fd.get()}));
    world.run_for(2ms);
  }
  auto pair = pairs.make();
  EXPECT_TRUE(pair.server->shared()) << "the server lives on";
}

}  // namespace
}  // namespace forebay
