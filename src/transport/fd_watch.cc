#include "transport/fd_watch.h"

#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/basic_stream_descriptor.hpp>

#include "loop/asio_loop_internal.h"

namespace forebay {

using Descriptor = asio::posix::basic_stream_descriptor<asio::io_context::executor_type>;

// Shared with the waits under way, which outlive the watch by a turn of the loop.
struct FdWatch::State {
  State(Loop& l, FdUser& u) : loop(l), descriptor(io_context_of(l)), user(&u) {}
  Loop& loop;
  Descriptor descriptor;
  FdUser* user;
};

FdWatch::FdWatch(Loop& loop, Fd fd, FdUser& user)
    : state_(std::make_shared<State>(loop, user)), fd_(fd.get()) {
  if (!fd) return;
  asio::error_code ec;
  state_->descriptor.assign(fd.get(), ec);
  FOREBAY_ASSERT(!ec, "cannot watch descriptor: " + ec.message());
  fd.release();
}

FdWatch::~FdWatch() {
  state_->user = nullptr;
  shut();
}

void FdWatch::await_readable() {
  state_->descriptor.async_wait(Descriptor::wait_read, [s = state_](const asio::error_code& ec) {
    if (s->user && ec != asio::error::operation_aborted) s->user->readable();
  });
}

void FdWatch::await_writable() {
  state_->descriptor.async_wait(Descriptor::wait_write, [s = state_](const asio::error_code& ec) {
    if (s->user && ec != asio::error::operation_aborted) s->user->writable();
  });
}

void FdWatch::defer() {
  state_->loop.post([s = state_] {
    if (s->user) s->user->deferred();
  });
}

void FdWatch::shut() {
  asio::error_code ignored;
  state_->descriptor.close(ignored);
  fd_ = -1;
}

Fd FdWatch::release() {
  state_->user = nullptr;
  if (fd_ < 0) return Fd();
  fd_ = -1;
  return Fd(state_->descriptor.release());
}

}  // namespace forebay
