#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "server_process.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

// A file of its own, written and read by whatever means.
class File {
 public:
  File(RemoteStore& store, const std::string& name) : store_(store) {
    Request r;
    r.op = Op::create;
    r.caller = caller_;
    r.handle = store.root().value();
    r.name = name;
    r.mode = 0600;
    r.access = Access::both;
    Reply made = store.call(std::move(r)).value();
    handle_ = made.handle;
    right_ = made.right;
  }

  Request transfer(Op op, uint64_t at, std::string& bytes) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle_;
    r.right = right_;
    r.file = Extents(Extent{Offset(at), Length(bytes.size())});
    r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
    return r;
  }

  // Writes and reads it back; true if it is the same.
  bool round_trip(std::mt19937_64& random, bool blocking) {
    const uint64_t size = random() % 5 ? 1 + random() % 5000 : 1 + random() % 1'500'000;
    const uint64_t at = random() % 100'000;
    std::string out(size, '\0'), in(size, '?');
    for (char& c : out) c = static_cast<char>(random());
    if (blocking) {
      return store_.call(transfer(Op::write, at, out)) && store_.call(transfer(Op::read, at, in)) &&
             in == out;
    }
    // Neither waits for the other: the order of submission holds.
    std::latch done(2);
    bool good = true;
    const auto note = [&](Result<Reply>&& r) {
      good &= r.has_value() && r->count == size;
      done.count_down();
    };
    store_.submit(transfer(Op::write, at, out), note);
    store_.submit(transfer(Op::read, at, in), note);
    done.wait();
    return good && in == out;
  }

 private:
  RemoteStore& store_;
  CallerRef caller_ = this_process_caller();
  Handle handle_;
  Right right_;
};

size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

template <class Fn>
void in_child(Fn&& fn) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) ::_exit(fn() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child failed: " << status;
}

TEST(ClientSystem, BlockingUseNeedsNoThread) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan has a thread of its own, which it starts when it likes";
#endif
  ServerProcess server;
  const size_t before = threads_of_this_process();
  auto store = server.connect().value();
  File file(*store, "a");
  std::mt19937_64 random(1);
  EXPECT_TRUE(file.round_trip(random, true));
  EXPECT_EQ(threads_of_this_process(), before);
  EXPECT_TRUE(file.round_trip(random, false));
  EXPECT_EQ(threads_of_this_process(), before + 1);
  EXPECT_TRUE(file.round_trip(random, true)) << "also while there is one";
}

TEST(ClientSystem, ManyThreadsBlockingAndNot) {
  const uint64_t seed = test_seed();
  ServerProcess server;
  auto store = server.connect().value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      File file(*store, fmt::format("file{}", t));
      for (int i = 0; i < 25; ++i) wrong += !file.round_trip(random, random() % 2);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// As a daemon does that closes all that it does not know; and then it may open files of its own,
// which have the same numbers. The library goes on by a new connection, and what is not its own it
// neither writes to nor closes.
TEST(ClientSystem, AProgramClosesWhatItDoesNotKnow) {
  const uint64_t seed = test_seed();
  ServerProcess server;
  for (const bool near : {true, false}) {
    for (const bool in_use_again : {true, false}) {
      SCOPED_TRACE(fmt::format("near {}, in use again {}", near, in_use_again));
      in_child([&] {
        ::alarm(60);
        std::mt19937_64 random(seed);
        auto store = near ? server.connect(1_MiB).value() : server.connect_from_afar().value();
        File file(*store, "a");
        if (!file.round_trip(random, true) || !file.round_trip(random, false)) return false;
        const std::string own = server.directory() + "/own";
        // At rest: between its look at a descriptor and its call nobody can help the library's
        // thread.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        // Behind the thread sanitizer's back, to which this is the race that it is meant to be.
        for (int fd = 3; fd < 200; ++fd) ::syscall(SYS_close, fd);
        int last = 2;
        while (in_use_again && last < 200) {
          last = ::open(own.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        }
        for (int i = 0; i < 3; ++i) {
          if (!file.round_trip(random, i % 2)) return false;
        }
        store.reset();
        if (!in_use_again) return true;
        struct stat is;
        for (int fd = 3; fd < 200; ++fd) {
          if (::fstat(fd, &is) != 0) return fmt::print(stderr, "{} was closed\n", fd), false;
        }
        if (is.st_size != 0) fmt::print(stderr, "{} bytes were written\n", is.st_size);
        return is.st_size == 0;
      });
    }
  }
}

TEST(ClientSystem, TheDestructorWaitsForWhatIsUnderWay) {
  ServerProcess server;
  std::vector<std::string> buffers(30, std::string(200'000, 'x'));
  std::atomic<int> done = 0;
  {
    auto store = server.connect().value();
    File file(*store, "a");
    for (auto& b : buffers) {
      store->submit(file.transfer(Op::write, 0, b),
                    [&](Result<Reply>&& r) { done += r.has_value(); });
    }
  }
  EXPECT_EQ(done, 30);
}

TEST(ClientSystem, CancelFromAnotherThread) {
  ServerProcess server;
  auto store = server.connect().value();
  File file(*store, "a");
  std::string bytes(1'000'000, 'x');
  for (int i = 0; i < 50; ++i) {
    std::stop_source stop;
    Request request = file.transfer(Op::write, 0, bytes);
    request.stop = stop.get_token();
    std::thread canceller([&] { stop.request_stop(); });
    const Result<Reply> result = store->call(std::move(request));
    canceller.join();
    EXPECT_TRUE(result || result.error().code() == ECANCELED) << result.error().message();
  }
}

TEST(ClientSystem, AForkedChildHasASessionOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan does not support threads made after the fork of a program with threads";
#endif
  ServerProcess server;
  auto store = server.connect().value();
  File file(*store, "parents");
  std::mt19937_64 random(1);
  ASSERT_TRUE(file.round_trip(random, true));
  ASSERT_TRUE(file.round_trip(random, false));  // with a thread, which the child has not
  in_child([&] {
    std::mt19937_64 r(2);
    bool good = file.round_trip(r, true) && File(*store, "childs").round_trip(r, false);
    in_child([&] { return file.round_trip(r, true); });
    good &= file.round_trip(r, true) && !::testing::Test::HasFailure();
    store.reset();
    return good;
  });
  EXPECT_TRUE(file.round_trip(random, true));
  EXPECT_EQ(store->stats().reconnects, 0u) << "the child must not have touched our session";
}

std::vector<int> sockets_of_this_process() {
  std::vector<int> out;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat st;
    if (::fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) out.push_back(fd);
  }
  return out;
}

TEST(ClientSystem, AForkedChildClosesNothingButTheSocket) {
  ServerProcess server;
  const std::vector<int> before = sockets_of_this_process();
  auto store = server.connect().value();
  std::vector<int> fresh;
  std::ranges::set_difference(sockets_of_this_process(), before, std::back_inserter(fresh));
  ASSERT_EQ(fresh.size(), 1u);
  in_child([&] {
    // As a daemon does that closes all it inherited, and then opens a file of its own.
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, fresh[0]);
    store.reset();
    struct stat st;
    return ::fstat(fresh[0], &st) == 0 && S_ISCHR(st.st_mode);
  });
  in_child([&] {
    store.reset();
    struct stat st;
    return ::fstat(fresh[0], &st) != 0;
  });
}

TEST(ClientSystem, AChildThatNeverUsesTheStoreMayDestroyIt) {
  ServerProcess server;
  auto store = server.connect().value();
  in_child([&] {
    store.reset();
    return true;
  });
  File file(*store, "a");
  EXPECT_EQ(store->stats().reconnects, 0u);
}

TEST(ClientSystem, ForkWhileOtherThreadsAreInCalls) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "the sanitizer's allocator may be locked by another thread at the fork, and is so "
         "in the child";
#endif
  ServerProcess server;
  auto store = server.connect().value();
  File file(*store, "shared");
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      File own(*store, fmt::format("thread{}", t));
      while (!stop) wrong += !own.round_trip(random, t == 0);
    });
  }
  for (unsigned i = 0; i < 20; ++i) {
    in_child([&] {
      std::mt19937_64 random(100 + i);
      return File(*store, fmt::format("child{}", i)).round_trip(random, true);
    });
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store->stats().reconnects, 0u);
}

TEST(ClientSystem, WithoutAServerConnectFailsAtOnceAndSaysWhatToDo) {
  TempDir dir;
  RemoteOptions options;
  options.address = [&]() -> Result<Address> {
    return Address{Address::Kind::unix_socket, dir / "nobody", 0};
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto store = RemoteStore::connect(options, ServerProcess::runtime());
  ASSERT_FALSE(store);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  EXPECT_EQ(store.error().code(), ENOTCONN);
  EXPECT_NE(store.error().message().find(dir / "nobody"), std::string::npos);
  EXPECT_NE(store.error().message().find("forebay start"), std::string::npos);
}

TEST(ClientSystem, AnUnknownExportIsRefused) {
  ServerProcess server;
  RemoteOptions options;
  options.address = [&]() -> Result<Address> { return server.address(); };
  options.export_name = "nothing";
  const auto store = RemoteStore::connect(options, ServerProcess::runtime());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), ENOENT);
}

TEST(ClientSystem, ControlAsksForTheStatus) {
  ServerProcess server;
  const auto status = control(server.address(), "status", 5s, ServerProcess::runtime());
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_NE(status->find("\"data\""), std::string::npos) << *status;
  EXPECT_FALSE(control(server.address(), "dance", 5s, ServerProcess::runtime()));
}

}  // namespace
}  // namespace forebay
