#include "transport/socket_bytes.h"

#include <sys/socket.h>

#include <optional>

#include "transport/fd_watch.h"

namespace forebay {

namespace {

class SocketBytes final : public ByteStream, public FdUser {
 public:
  explicit SocketBytes(Fd socket) : parked_(std::move(socket)) {}

  void attach(Loop& loop, User& user) override {
    user_ = &user;
    watch_.emplace(loop, std::move(parked_), *this);
  }
  void detach() override {
    parked_ = watch_->release();
    watch_.reset();
  }

  // One range is the rule for small frames, and the plain calls are the cheaper ones for it.
  ssize_t receive(std::span<iovec> space) override {
    if (space.size() == 1) {
      return ::recv(watch_->fd(), space[0].iov_base, space[0].iov_len, MSG_DONTWAIT);
    }
    msghdr message{};
    message.msg_iov = space.data();
    message.msg_iovlen = space.size();
    return ::recvmsg(watch_->fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }
  ssize_t send(std::span<iovec> bytes) override {
    constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
    if (bytes.size() == 1) {
      return ::send(watch_->fd(), bytes[0].iov_base, bytes[0].iov_len, kFlags);
    }
    msghdr message{};
    message.msg_iov = bytes.data();
    message.msg_iovlen = bytes.size();
    return ::sendmsg(watch_->fd(), &message, kFlags);
  }

  void await_readable() override { watch_->await_readable(); }
  void await_writable() override { watch_->await_writable(); }
  void defer() override { watch_->defer(); }

  void shut() override { watch_->shut(); }

  int descriptor() const override { return watch_ ? watch_->fd() : -1; }

 private:
  void readable() override { user_->readable(); }
  void writable() override { user_->writable(); }
  void deferred() override { user_->deferred(); }

  User* user_ = nullptr;
  Fd parked_;  // while no loop watches it
  std::optional<FdWatch> watch_;
};

}  // namespace

std::unique_ptr<ByteStream> make_socket_bytes(Fd socket) {
  return std::make_unique<SocketBytes>(std::move(socket));
}

}  // namespace forebay
