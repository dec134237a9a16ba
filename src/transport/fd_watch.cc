#include "transport/fd_watch.h"

#include <sys/epoll.h>

#include "core/assert.h"
#include "loop/epoll_loop.h"

namespace forebay {

EpollLoop& epoll_loop(Loop& loop) {
  auto* epoll = dynamic_cast<EpollLoop*>(&loop);
  FOREBAY_ASSERT(epoll != nullptr, "sockets and shared memory need a loop of the real kind");
  return *epoll;
}

// Shared with whatever is under way when the watch is destroyed.
struct FdWatch::State final : EpollLoop::Ready, std::enable_shared_from_this<State> {
  State(Loop& l, Fd f, FdUser& u) : loop(epoll_loop(l)), fd(std::move(f)), user(&u) {
    if (fd) loop.adopt(fd.get());
  }

  // What is not ours is not ours to close.
  void close() {
    if (fd && !loop.owns(fd.get())) fd.release();
    fd.reset();
  }

  void await(uint32_t events) {
    if (!fd) return;
    wanted |= events;
    if ((registered & wanted) == wanted) return;
    loop.watch(fd.get(), registered | wanted, *this, registered != 0);
    registered |= wanted;
  }

  void forget() {
    if (registered != 0) loop.unwatch(fd.get(), *this);
    registered = 0;
  }

  void ready(uint32_t events) override {
    const auto alive = shared_from_this();
    if (events & (EPOLLERR | EPOLLHUP)) events |= EPOLLIN | EPOLLOUT;  // whoever waits finds out
    const uint32_t due = events & wanted;
    wanted &= ~due;
    if (due & EPOLLIN && user) user->readable();
    if (due & EPOLLOUT && user) user->writable();
    settle(events);
  }

  // Whoever waits finds out.
  void lost() override {
    registered = 0;
    close();
    ready(EPOLLERR);
  }

  // What was ready, and is registered, and nobody waits for, would be reported without end.
  void settle(uint32_t events) {
    if (!fd || (events & registered & ~wanted) == 0) return;
    if (wanted == 0 || (events & (EPOLLERR | EPOLLHUP))) return forget(), await(wanted);
    loop.watch(fd.get(), wanted, *this, true);
    registered = wanted;
  }

  EpollLoop& loop;
  Fd fd;
  FdUser* user;
  uint32_t wanted = 0;      // waits for these
  uint32_t registered = 0;  // what the epoll knows
};

FdWatch::FdWatch(Loop& loop, Fd fd, FdUser& user)
    : state_(std::make_shared<State>(loop, std::move(fd), user)) {}

FdWatch::~FdWatch() {
  state_->user = nullptr;
  shut();
}

int FdWatch::fd() const {
  const int fd = state_->fd.get();
  return fd < 0 || state_->loop.owns(fd) ? fd : -1;
}

void FdWatch::await_readable() {
  state_->await(EPOLLIN);
}

void FdWatch::await_writable() {
  state_->await(EPOLLOUT);
}

void FdWatch::defer() {
  state_->loop.post([s = state_] {
    if (s->user) s->user->deferred();
  });
}

void FdWatch::shut() {
  state_->forget();
  state_->wanted = 0;
  state_->close();
}

Fd FdWatch::release() {
  state_->user = nullptr;
  state_->forget();
  state_->wanted = 0;
  return std::move(state_->fd);
}

}  // namespace forebay
