// What the tests of the C API share: a real server on a thread of this process, over a Unix socket,
// with a store whose faults the test commands; and a connection to it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <semaphore>
#include <string>
#include <vector>

#include "core/testing.h"
#include "forebay/forebay.h"
#include "loop/epoll_loop.h"
#include "loop/loop_thread.h"
#include "server/server.h"
#include "store/fault.h"
#include "store/memory.h"
#include "transport/socket_transport.h"

namespace forebay {

class ServerThread {
 public:
  explicit ServerThread(MemoryOptions options = {}) {
    auto faulty = std::make_unique<FaultStore>(std::make_unique<MemoryStore>(options));
    faults_ = faulty.get();
    ExportOptions exported;
    exported.scheduler.policy =
        SchedulerOptions::Policy::fifo;  // what is held holds nothing else up
    exported.name = "data";
    exported.chunk = 64_KiB;
    exported.pool = 1_MiB;
    server_->add_export(exported, std::move(faulty)).value();
    listener_ = transport_
                    .listen(*Address::parse(address()), loop_,
                            [this](auto c) { server_->accept(std::move(c)); })
                    .value();
    thread_ = std::make_unique<LoopThread>(loop_, "server");
  }
  ~ServerThread() {
    faults_->clear();
    faults_->release();
    std::binary_semaphore stopped(0);
    loop_.post([&] {
      listener_.reset();
      server_->stop(std::chrono::seconds(10), [&] { stopped.release(); });
    });
    stopped.acquire();
    std::binary_semaphore gone(0);
    loop_.post([&] {
      server_.reset();
      gone.release();
    });
    gone.acquire();
    thread_->stop();
  }

  std::string address() const { return "unix:" + (dir_ / "socket"); }
  FaultStore& faults() { return *faults_; }

 private:
  TempDir dir_;
  CounterSet counters_;
  EpollLoop loop_;
  SocketTransport transport_;
  std::unique_ptr<Server> server_ =
      std::make_unique<Server>(ServerOptions{}, loop_, std::vector<Loop*>{&loop_}, counters_);
  FaultStore* faults_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LoopThread> thread_;
};

#define EXPECT_ERRNO(code, call)                             \
  do {                                                       \
    errno = 0;                                               \
    EXPECT_EQ((call), -1) << #call;                          \
    EXPECT_EQ(errno, (code)) << #call << ": " << fb_error(); \
  } while (false)
#define EXPECT_OK(call) EXPECT_EQ((call), 0) << fb_error()
#define ASSERT_OK(call) ASSERT_EQ((call), 0) << fb_error()

class Capi : public ::testing::Test {
 protected:
  explicit Capi(MemoryOptions options = {}) : server_(options) {}
  void SetUp() override { ASSERT_OK(fb_connect(server_.address().c_str(), "data", &store_)); }
  void TearDown() override { EXPECT_OK(fb_disconnect(store_)); }

  fb_file* open(const std::string& path, int flags = O_CREAT | O_RDWR) {
    fb_file* file = nullptr;
    EXPECT_OK(fb_open(store_, path.c_str(), flags, 0644, nullptr, &file));
    return file;
  }
  void write(fb_file* file, const std::string& text, uint64_t offset = 0) {
    EXPECT_EQ(fb_pwrite(file, text.data(), text.size(), offset), static_cast<int64_t>(text.size()))
        << fb_error();
  }
  std::string read(fb_file* file, size_t size, uint64_t offset = 0) {
    std::string text(size, '?');
    const int64_t got = fb_pread(file, text.data(), size, offset);
    EXPECT_GE(got, 0) << fb_error();
    text.resize(static_cast<size_t>(std::max<int64_t>(got, 0)));
    return text;
  }
  // The next write is not answered until release().
  void hold(Op op) {
    server_.faults().add(
        {.op = op, .nth = server_.faults().calls(op), .action = FaultRule::Action::hold});
  }
  void wait_until_held() {
    while (server_.faults().held() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void release() {
    server_.faults().clear();
    server_.faults().release();
  }

  ServerThread server_;
  fb_store* store_ = nullptr;
};

}  // namespace forebay
