#include "transport/shared_offer.h"

#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "transport/shared_bytes.h"

namespace forebay {

namespace shared {

namespace {

constexpr int kMostClosers = 16;
std::atomic<int> closers{0};

union Control {  // aligned as the kernel wants it
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

Result<void> send_with(int socket, const void* bytes, size_t size, int descriptor) {
  iovec piece{const_cast<void*>(bytes), size};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof descriptor);
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
  }
  const ssize_t n = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) return Error(errno, "shared memory: cannot offer it");
  if (static_cast<size_t>(n) != size) return Error(EPROTO, "shared memory: half an offer");
  return {};
}

Result<Fd> receive_with(int socket, void* bytes, size_t size) {
  iovec piece{bytes, size};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  // The kernel drops what does not fit.
  message.msg_controllen = closers.load() < kMostClosers ? CMSG_LEN(sizeof(int)) : 0;
  const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return Error(errno);
  if (n == 0) return Error(ECONNRESET, "closed by peer");
  Fd first;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    if (c->cmsg_len < CMSG_LEN(sizeof(int)) || first) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    first = Fd(fd);
  }
  if (static_cast<size_t>(n) != size) return Error(EPROTO, "shared memory: half a message");
  return first;
}

void close_elsewhere(Fd descriptor) {
  ++closers;
  std::thread([held = std::move(descriptor)]() mutable {
    held.reset();
    --closers;
  }).detach();
}

}  // namespace shared

Result<void> send_offer(int socket, const SharedRegion& region) {
  shared::Offer offer;
  offer.ring = region.layout().ring;
  offer.area = region.layout().area;
  return shared::send_with(socket, &offer, sizeof offer, region.descriptor());
}

Result<OfferAnswer> receive_answer(int socket) {
  shared::Answer answer;
  Result<Fd> bell = shared::receive_with(socket, &answer, sizeof answer);
  if (!bell) return std::move(bell).error();
  if (answer.magic != shared::kMagic) return Error(EPROTO, "the server broke the protocol");
  OfferAnswer result;
  result.plain = answer.refused != 0 || !*bell;
  result.bell = std::move(*bell);
  return result;
}

}  // namespace forebay
