// Small writes in boxes (transport/shared_box.h), over real shared memory: in order with everything
// else that their client sends, each with its own result, and none with another's bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>

#include "client/remote_store.h"
#include "core/testing.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/server.h"
#include "store/fault.h"
#include "store/memory.h"
#include "transport/shared_box.h"
#include "transport/socket_transport.h"

namespace forebay {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kFile = 256_KiB;

std::string random_bytes(std::mt19937_64& random, uint64_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

ServerOptions impatient() {
  ServerOptions options;
  options.grace = options.stall = options.deadline = 100ms;
  return options;
}

class BoxesTest : public ::testing::Test {
 protected:
  // Requests under way, and the first thing that went wrong with them.
  struct Crowd {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;
    void end() {
      std::lock_guard lock(mutex);
      --left;
      changed.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return left == 0; }));
    }
  };

  explicit BoxesTest(When behind = When::asked) {
    ExportOptions exported;
    exported.name = "data";
    exported.write_behind.when = behind;
    auto faulty = std::make_unique<FaultStore>(std::make_unique<MemoryStore>(), random_());
    faulty_ = faulty.get();
    server_->add_export(exported, std::move(faulty)).value();
    listener_ =
        transport_
            .listen({Address::Kind::unix_socket, dir_ / "socket", 0}, loop_,
                    [this](std::unique_ptr<Connection> c) { server_->accept(std::move(c)); })
            .value();
    thread_ = std::make_unique<LoopThread>(loop_);
    RemoteRuntime runtime;
    runtime.make_loop = [] { return std::make_unique<EpollLoop>(); };
    runtime.make_transport = [](Loop&) {
      return std::make_unique<SocketTransport>(SocketOptions{.shared_area = 1_MiB});
    };
    RemoteOptions options;
    options.address = [a = listener_->address()]() -> Result<Address> { return a; };
    options.export_name = "data";
    store_ = RemoteStore::connect(std::move(options), std::move(runtime)).value();
    Request create = request(Op::create);
    create.handle = store_->root().value();
    create.name = "f";
    create.mode = 0600;
    create.access = Access::both;
    file_ = store_->call(std::move(create)).value();
    std::string zeros(kFile, '\0');
    EXPECT_TRUE(write(0, zeros));
  }

  Request request(Op op) {
    Request r;
    r.op = op;
    r.caller = this_process_caller();
    r.handle = file_.handle;
    r.right = file_.right;
    return r;
  }
  Request transfer(Op op, uint64_t at, std::string& bytes) {
    Request r = request(op);
    r.file = Extents(Extent{Offset(at), Length(bytes.size())});
    r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
    return r;
  }
  Result<Reply> write(uint64_t at, std::string& bytes) {
    return store_->call(transfer(Op::write, at, bytes));
  }
  std::string content() {
    std::string bytes(kFile, '?');
    const Result<Reply> read = store_->call(transfer(Op::read, 0, bytes));
    EXPECT_TRUE(read && read->count == kFile);
    return bytes;
  }
  template <class Done>
  void submit(Request&& r, Done&& done) {
    {
      std::lock_guard lock(crowd_.mutex);
      ++crowd_.left;
    }
    store_->submit(std::move(r), [this, done](Result<Reply>&& result) {
      done(std::move(result));
      crowd_.end();
    });
  }

  std::mt19937_64 random_{test_seed()};
  TempDir dir_;
  CounterSet counters_;
  EpollLoop loop_;
  SocketTransport transport_;
  std::unique_ptr<Server> server_ =
      std::make_unique<Server>(impatient(), loop_, std::vector<Loop*>{&loop_}, counters_);
  FaultStore* faulty_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<RemoteStore> store_;
  Reply file_;
  Crowd crowd_;
};

TEST_F(BoxesTest, KeepTheOrderOfWhatMeets) {
  std::string oracle(kFile, '\0');
  uint64_t last = 0;  // where the one before ends
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 12; ++i) {
      const uint64_t size = 1 + random_() % (random_() % 4 ? 600 : 2 * kBoxBytes);
      const bool goes_on = last + size <= kFile && random_() % 2;
      const uint64_t at = goes_on ? last : random_() % (kFile - size);
      last = at + size;
      auto bytes = std::make_shared<std::string>(random_bytes(random_, size));
      switch (random_() % 8) {
        case 0: {
          *bytes = std::string(size, '?');
          submit(transfer(Op::read, at, *bytes),
                 [bytes, expected = oracle.substr(at, size)](Result<Reply>&& result) {
                   EXPECT_TRUE(result);
                   EXPECT_TRUE(*bytes == expected) << "a read of what was written before it";
                 });
          break;
        }
        case 1: {
          // What is cut off is zero when the file is long again.
          std::fill(oracle.begin() + static_cast<ptrdiff_t>(at), oracle.end(), '\0');
          for (const uint64_t to : {at, kFile}) {
            Request resize = request(Op::resize);
            resize.length = Length(to);
            submit(std::move(resize), [](Result<Reply>&& result) { EXPECT_TRUE(result); });
          }
          break;
        }
        default:
          oracle.replace(at, size, *bytes);
          submit(transfer(Op::write, at, *bytes), [bytes, size](Result<Reply>&& result) {
            EXPECT_TRUE(result && result->count == size);
          });
      }
    }
    crowd_.wait();
    ASSERT_TRUE(content() == oracle) << "round " << round;
  }
  EXPECT_GT(store_->stats().boxed, 500u);
}

TEST_F(BoxesTest, FailEachForItself) {
  std::string oracle = content();
  unsigned failed = 0;
  for (int round = 0; round < 100; ++round) {
    faulty_->add({.op = Op::write, .probability = 0.4, .error = ENOSPC});
    for (uint64_t i = 0; i < 12; ++i) {
      const uint64_t at = (i + random_() % 2) * 1000;
      if (i % 2) continue;
      auto bytes = std::make_shared<std::string>(random_bytes(random_, 1000));
      submit(transfer(Op::write, at, *bytes), [&, at, bytes](Result<Reply>&& result) {
        if (result) oracle.replace(at, 1000, *bytes);
        if (result) return;
        EXPECT_EQ(result.error().code(), ENOSPC);
        ++failed;
      });
    }
    crowd_.wait();
    faulty_->clear();
    ASSERT_TRUE(content() == oracle) << "round " << round;
  }
  EXPECT_GT(failed, 0u);
  EXPECT_GT(store_->stats().boxed, 100u);
}

// What a completion submits waits together.
TEST_F(BoxesTest, HoldWhatGoesOnFromEachOther) {
  std::string first(4096, 'a'), oracle = content();
  EXPECT_TRUE(write(0, first)) << "the first small one proves the right";
  std::vector<std::string> blocks;
  for (char c = 'b'; c < 'j'; ++c) blocks.emplace_back(4096, c);
  for (const int code : {0, ENOSPC}) {
    if (code) faulty_->add({.op = Op::write, .nth = 1, .error = code});
    const uint64_t boxed = store_->stats().boxed;
    unsigned failed = 0;
    submit(transfer(Op::write, 0, first), [&](Result<Reply>&& result) {
      EXPECT_TRUE(result);
      for (uint64_t i = 0; i < blocks.size(); ++i)
        submit(transfer(Op::write, (i + 1) * 4096, blocks[i]), [&](Result<Reply>&& done) {
          failed += !done;
          EXPECT_TRUE(!done || done->count == 4096);
        });
    });
    crowd_.wait();
    EXPECT_EQ(failed, 0u) << "what fails together is done again, one by one";
    if (!code) {
      EXPECT_EQ(store_->stats().boxed, boxed + 2);
    }
    faulty_->clear();
  }
  oracle.replace(0, 4096, first);
  for (size_t i = 0; i < blocks.size(); ++i) oracle.replace((i + 1) * 4096, 4096, blocks[i]);
  EXPECT_TRUE(content() == oracle);
}

// Of an export that keeps what is written in memory for a while.
class KeptBoxesTest : public BoxesTest {
 protected:
  KeptBoxesTest() : BoxesTest(When::always) {}
};

TEST_F(KeptBoxesTest, AreKeptUnlessTheyMustNotBe) {
  std::string bytes(4096, 'a');
  const auto written = [&](uint32_t flags) {
    const uint64_t boxed = store_->stats().boxed;
    Request r = transfer(Op::write, 0, bytes);
    r.flags = flags;
    const Result<Reply> reply = store_->call(std::move(r));
    EXPECT_TRUE(reply && reply->count == 4096);
    EXPECT_EQ(store_->stats().boxed, boxed + 1);
    return reply && reply->verifier == 0;
  };
  EXPECT_FALSE(written(0));
  EXPECT_TRUE(written(kFlagStable));
  EXPECT_FALSE(written(0));
}

TEST_F(BoxesTest, AreNotFilledAnewWhileTheStoreHasThem) {
  std::string first(4096, 'a'), second(4096, 'b');
  EXPECT_TRUE(write(16384, second)) << "the first small one proves the right";
  faulty_->add({.op = Op::write, .action = FaultRule::Action::hold});
  const auto before = store_->stats();
  const Result<Reply> late = write(0, first);
  EXPECT_EQ(store_->stats().boxed, before.boxed + 1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ETIMEDOUT);
  EXPECT_TRUE(late.error().is_outcome_unknown());
  EXPECT_EQ(store_->stats().reconnects, before.reconnects);
  faulty_->clear();
  // Behind the one that is held: what becomes of it is unknown.
  EXPECT_FALSE(write(4096, second));
  faulty_->release();
  const uint64_t boxed = store_->stats().boxed;
  for (uint64_t i = 0; i < 2 * kBoxes; ++i) EXPECT_TRUE(write(32768 + 4096 * i, second));
  EXPECT_EQ(store_->stats().boxed, boxed + 2 * kBoxes) << "in others";
  EXPECT_EQ(store_->stats().reconnects, before.reconnects);
  EXPECT_TRUE(content().substr(0, 4096) == first);
}

// A server that stops answers before it goes, so that the next one is not asked to do it again.
TEST_F(BoxesTest, AreAnsweredBeforeTheServerGoes) {
  std::string first(4096, 'a'), second(4096, 'b');
  EXPECT_TRUE(write(16384, second));
  faulty_->add({.op = Op::write, .action = FaultRule::Action::hold});
  Result<Reply> late = Reply{};
  std::thread writer([&] { late = write(0, first); });
  while (faulty_->held() == 0) std::this_thread::sleep_for(1ms);
  loop_.post([this] { server_->stop(10s, [] {}); });
  writer.join();
  ASSERT_FALSE(late);
  EXPECT_TRUE(late.error().is_outcome_unknown()) << late.error().message();
  faulty_->clear();
  faulty_->release();
}

}  // namespace
}  // namespace forebay
