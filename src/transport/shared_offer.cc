#include "transport/shared_offer.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>

#include "transport/shared_bytes.h"

namespace forebay {

namespace shared {

namespace {

constexpr int kMostClosers = 16;
std::atomic<int> closers{0};

union Control {  // aligned as the kernel wants it
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(Descriptors))];
};

}  // namespace

Result<void> send_with(int socket, const void* bytes, size_t size, Descriptors descriptors) {
  iovec piece{const_cast<void*>(bytes), size};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const auto end = std::remove(descriptors.begin(), descriptors.end(), -1);
  if (const size_t n = sizeof(int) * static_cast<size_t>(end - descriptors.begin()); n != 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(n);
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n);
    std::memcpy(CMSG_DATA(c), descriptors.data(), n);
  }
  const ssize_t n = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) return Error(errno, "shared memory: cannot offer it");
  if (static_cast<size_t>(n) != size) return Error(EPROTO, "shared memory: half an offer");
  return {};
}

Result<size_t> receive_some_with(int socket, void* bytes, size_t most, Received& received) {
  iovec piece{bytes, most};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  // The kernel drops what does not fit.
  message.msg_controllen = closers.load() < kMostClosers ? CMSG_LEN(sizeof(Descriptors)) : 0;
  const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return Error(errno);
  size_t count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, reinterpret_cast<const char*>(c) + at, sizeof fd);
      Fd held(fd);
      if (count < received.size()) received[count++] = std::move(held);
    }
  }
  return static_cast<size_t>(n);
}

Result<Received> receive_with(int socket, void* bytes, size_t size) {
  Received received;
  const Result<size_t> n = receive_some_with(socket, bytes, size, received);
  if (!n) return n.error();
  if (*n == 0) return Error(ECONNRESET, "closed by peer");
  if (*n != size) {
    for (Fd& fd : received) {
      if (fd) close_elsewhere(std::move(fd));
    }
    return Error(EPROTO, "shared memory: half a message");
  }
  return received;
}

void close_elsewhere(Fd descriptor) {
  ++closers;
  try {
    std::thread([held = std::move(descriptor)]() mutable {
      held.reset();
      --closers;
    }).detach();
  } catch (const std::system_error&) {
    --closers;  // no thread is to be had: it was closed here, with what was to run there
  }
}

}  // namespace shared

Result<void> send_offer(int socket, const SharedRegion& region) {
  shared::Offer offer;
  offer.ring = region.layout().ring;
  offer.area = region.layout().area;
  const auto& lent = region.lent();
  if (lent) offer.lent = lent->bytes().size();
  return shared::send_with(socket, &offer, sizeof offer,
                           {region.descriptor(), lent ? lent->descriptor() : -1});
}

Result<OfferAnswer> receive_answer(int socket) {
  shared::Answer answer;
  Result<shared::Received> received = shared::receive_with(socket, &answer, sizeof answer);
  if (!received) return std::move(received).error();
  Fd& bell = received->front();
  if (answer.magic != shared::kMagic) return Error(EPROTO, "the server broke the protocol");
  OfferAnswer result;
  result.plain = answer.refused != 0 || !bell;
  result.bell = std::move(bell);
  return result;
}

}  // namespace forebay
