// The same server on real threads: a lobby and two workers, Unix sockets, clients on threads of
// their own, a store that answers on threads of its own. For ThreadSanitizer above all.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <thread>

#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/raw_client.h"
#include "transport/socket_transport.h"

namespace forebay::server {
namespace {

// Completes every other call on one of its two threads, the rest inline.
class ThreadedStore final : public Store {
 public:
  ThreadedStore() {
    for (auto& thread : threads_) thread = std::jthread([this] { run(); });
  }
  ~ThreadedStore() override {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  void submit(Request&& request, Completion&& done) override {
    if (calls_.fetch_add(1) % 2 == 0) return memory_.submit(std::move(request), std::move(done));
    {
      std::lock_guard lock(mutex_);
      queue_.emplace_back(std::move(request), std::move(done));
    }
    changed_.notify_one();
  }
  Result<Handle> root() override { return memory_.root(); }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto [request, done] = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      memory_.submit(std::move(request), std::move(done));
      lock.lock();
    }
  }

  MemoryStore memory_;
  std::atomic<unsigned> calls_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Request, Completion>> queue_;
  bool over_ = false;
  std::jthread threads_[2];
};

// Runs fn on the loop's thread and waits for it.
template <class Fn>
void on(Loop& loop, Fn fn) {
  std::binary_semaphore ran(0);
  loop.post([&] {
    fn();
    ran.release();
  });
  ran.acquire();
}

void work(const Address& address, int number) {
  EpollLoop loop;
  RawClient c(loop, std::make_unique<SocketTransport>(), address, numbered("c", number));
  ASSERT_TRUE(c.connect());
  const OpenFile own = create(c, numbered("own", number)), shared = create(c, "shared");
  for (int i = 0; i < 10; ++i) {
    const std::string data = pattern(number * 100 + i, i % 3 ? 3000 : 300000);
    c.send(data_request(Op::write, own, range(i * 1000, data.size())), data);
    c.send(data_request(Op::write, shared, range(0, data.size())), data);
    c.send(data_request(Op::read, shared, range(0, 200000)));
    const auto back = c.call(data_request(Op::read, own, range(i * 1000, data.size())));
    ASSERT_EQ(back->in, data);
    if (i % 3 == 0) {
      ASSERT_EQ(c.call(data_request(Op::commit, own, {}))->error(), 0);
    }
    if (i % 4 == 3) {
      ASSERT_TRUE(c.resume());
    }
  }
  ASSERT_TRUE(run_until(
      loop, [&] { return c.unanswered().empty() || c.closed; }, 60s));
  ASSERT_FALSE(c.closed);
}

void many_clients_on_two_workers(const WriteBehindOptions& behind) {
  TempDir dir;
  CounterSet counters;
  EpollLoop lobby, first, second;
  auto server = std::make_unique<Server>(ServerOptions{}, lobby,
                                         std::vector<Loop*>{&first, &second}, counters);
  ExportOptions o = SimServer::small();
  o.chunk = 64_KiB;
  o.pool = 1_MiB;
  o.write_behind = behind;
  ASSERT_TRUE(server->add_export(o, std::make_unique<ThreadedStore>()).has_value());
  SocketTransport transport;
  auto listener = transport.listen(*Address::parse("unix:" + (dir / "socket")), lobby,
                                   [&](auto c) { server->accept(std::move(c)); });
  ASSERT_TRUE(listener.has_value());
  const Address address = (*listener)->address();
  {
    LoopThread a(lobby, "lobby"), b(first, "first"), c(second, "second");
    {
      std::vector<std::jthread> clients;
      for (int i = 0; i < 6; ++i) clients.emplace_back([&, i] { work(address, i); });
      for (int i = 0; i < 20; ++i) {
        on(lobby, [&] { EXPECT_NE(server->status().find("\"sessions\""), std::string::npos); });
        std::this_thread::sleep_for(5ms);
      }
    }
    std::binary_semaphore stopped(0);
    on(lobby, [&] {
      listener->reset();
      server->stop(10s, [&] { stopped.release(); });
    });
    stopped.acquire();
    on(lobby, [&] { server.reset(); });
  }
}

TEST(Threads, ManyClientsOnTwoWorkers) {
  many_clients_on_two_workers({});
}

TEST(Threads, ManyClientsWithWriteBehind) {
  many_clients_on_two_workers({.when = When::always, .memory = 512_KiB, .age = 3ms});
}

}  // namespace
}  // namespace forebay::server
