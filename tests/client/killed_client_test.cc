// Clients that share memory with the server are killed at any moment, one after the other, while
// they write and read through the rings, the area and memory that they lend. An honest client
// beside them notices nothing; what a killed one left in its file are bytes that it wrote; and the
// server gets everything back, locks as well.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include "server_process.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kFile = 1_MiB;
constexpr uint64_t kLent = 4_MiB;
constexpr int kKills = 60;

// Whatever a client writes is a function of who it is and where.
char byte_of(unsigned client, uint64_t offset) {
  return static_cast<char>(1 + (client * 31 + offset * 7 + offset / 255) % 255);
}

class File {
 public:
  File(RemoteStore& store, unsigned client) : store_(store), client_(client) {
    Request r;
    r.op = Op::create;
    r.caller = caller_;
    r.handle = store.root().value();
    r.name = fmt::format("file{}", client);
    r.mode = 0600;
    r.access = Access::both;
    const Reply made = store.call(std::move(r)).value();
    handle_ = made.handle;
    right_ = made.right;
  }

  Request transfer(Op op, uint64_t at, std::span<std::byte> bytes) const {
    if (op == Op::write) {
      for (uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(byte_of(client_, at + i));
    }
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle_;
    r.right = right_;
    r.file = Extents(Extent{Offset(at), Length(bytes.size())});
    r.memory = Memory::of(bytes);
    return r;
  }

  // In ordinary memory or in memory that is lent.
  bool call(Op op, uint64_t at, uint64_t length, bool lent) {
    std::byte* const memory = lent ? store_.allocate(length) : nullptr;
    std::vector<std::byte> own(memory ? 0 : length);
    const std::span<std::byte> bytes = memory ? std::span(memory, length) : std::span(own);
    Result<Reply> result = store_.call(transfer(op, at, bytes));
    bool good = result.has_value() && (op == Op::read || result->count == length);
    for (uint64_t i = 0; good && op == Op::read && i < result->count; ++i) {
      good = bytes[i] == std::byte(0) || bytes[i] == std::byte(byte_of(client_, at + i));
    }
    if (memory) store_.deallocate(memory);
    return good;
  }

  // All of it, as fcntl(2) has locks.
  bool lock(uint32_t flags) {
    Request r;
    r.op = Op::lock;
    r.caller = caller_;
    r.handle = handle_;
    r.right = right_;
    r.flags = flags;
    r.cookie = 1;
    return store_.call(std::move(r)).has_value();
  }

  // Many at once, of which some travel together.
  void small_writes(std::mt19937_64& random) {
    constexpr int kMany = 64;
    std::vector<std::vector<std::byte>> buffers(kMany);
    std::latch done(kMany);
    for (auto& bytes : buffers) {
      bytes.resize(1 + random() % 3000);
      store_.submit(transfer(Op::write, random() % (kFile - 3000), bytes),
                    [&](Result<Reply>&&) { done.count_down(); });
    }
    done.wait();
  }

 private:
  RemoteStore& store_;
  const unsigned client_;
  CallerRef caller_ = this_process_caller();
  Handle handle_;
  Right right_;
};

[[noreturn]] void live_until_killed(const ServerProcess& server, unsigned client, uint64_t seed,
                                    int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::mt19937_64 random(seed);
  auto store = server.connect(kLent).value();
  File file(*store, client);
  FOREBAY_ASSERT(::write(ready, "!", 1) == 1);
  for (;;) {
    const uint64_t pages = 1 + random() % (kFile / 8192);
    const uint64_t at = random() % (kFile / 2);
    const bool lent = random() % 2;
    switch (random() % 3) {
      case 0:
        file.small_writes(random);
        break;
      case 1:
        FOREBAY_ASSERT(file.call(Op::write, at, pages * 4096 - random() % 4096, lent));
        break;
      default:
        FOREBAY_ASSERT(file.call(Op::read, at, pages * 4096, lent));
    }
  }
}

[[noreturn]] void lock_until_killed(const ServerProcess& server, int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto store = server.connect().value();
  FOREBAY_ASSERT(File(*store, 1).lock(0));
  FOREBAY_ASSERT(::write(ready, "!", 1) == 1);
  for (;;) ::pause();
}

// Kills it: now and then before it is ready, else in the middle of its work.
void kill_one(const ServerProcess& server, unsigned client, std::mt19937_64& random, File& honest) {
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) live_until_killed(server, client, random(), ready[1]);
  ::close(ready[1]);
  char byte;
  const bool early = random() % 5 == 0;
  if (!early) {
    EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the client did not come up";
  }
  for (uint64_t n = random() % 3; n > 0; --n) {
    const uint64_t length = 1 + random() % (random() % 2 ? 4000 : kFile);
    EXPECT_TRUE(honest.call(Op::write, 0, length, random() % 2));
  }
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      << "the client failed before it was killed: " << status;
  ::close(ready[0]);
}

TEST(KilledClients, HurtNobodyAndLeaveNothing) {
  std::mt19937_64 random(test_seed());
  ServerOptions options;
  options.grace = 5ms;
  options.eager_max = 1024;
  ExportOptions exported;
  exported.chunk = 64_KiB;
  exported.pool = 1_MiB;
  const ServerProcess server(options, exported);
  auto store = server.connect(kLent).value();
  File honest(*store, 0);
  for (unsigned client = 1; client <= kKills && !HasFailure(); ++client) {
    kill_one(server, client, random, honest);
    // The file, which the dead client may have had for itself until its grace was over.
    EXPECT_TRUE(File(*store, client).call(Op::read, 0, kFile, client % 2))
        << "a killed client's file holds what it never wrote";
  }
  ASSERT_TRUE(honest.call(Op::write, 0, kFile, true));
  EXPECT_TRUE(honest.call(Op::read, 0, kFile, false));
  EXPECT_EQ(store->stats().reconnects, 0u);

  std::string status;
  const auto all_back = [&] {
    status = control(server.address(), "status", 5s, ServerProcess::runtime()).value();
    const auto first = status.find("\"connected\"");
    return first != std::string::npos &&
           status.find("\"connected\"", first + 1) == std::string::npos &&
           status.find(R"("in_use": 0)") != std::string::npos &&
           status.find(R"("reservations": 0)") != std::string::npos;
  };
  for (int i = 0; !all_back(); ++i) {
    ASSERT_LT(i, 500) << status;
    std::this_thread::sleep_for(10ms);
  }
}

TEST(KilledClients, LetGoOfTheirLocksLongBeforeTheirGraceIsOver) {
  ServerOptions options;
  options.grace = 100s;
  const ServerProcess server(options);
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) lock_until_killed(server, ready[1]);
  ::close(ready[1]);
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  auto store = server.connect().value();
  File file(*store, 1);
  EXPECT_FALSE(file.lock(0));
  std::thread killer([&] {
    std::this_thread::sleep_for(100ms);  // so that somebody waits for it
    ::kill(pid, SIGKILL);
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(file.lock(kFlagWait));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);
  killer.join();
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace forebay
