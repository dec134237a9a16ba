#include "fuse/kernel_io.h"

#include <linux/fuse.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fuse/door.h"

namespace forebay::fuse {

namespace {

// FUSE_DIRECT_IO_ALLOW_MMAP, bit 36, among the second 32 flags: not in the headers of Debian 12.
constexpr uint32_t kDirectIoAllowMmap = 1u << (36 - 32);

ssize_t read_request(int fd, void* to, size_t size, void* door) {
  return static_cast<Door*>(door)->kernel().read(fd, {static_cast<std::byte*>(to), size});
}

ssize_t write_reply(int fd, iovec* pieces, int count, void* door) {
  return static_cast<Door*>(door)->kernel().write(fd, {pieces, static_cast<size_t>(count)});
}

}  // namespace

int KernelIo::attach(fuse_session* session) {
  fuse_custom_io io = {};
  io.read = read_request;
  io.writev = write_reply;
  return fuse_session_custom_io(session, &io, fuse_session_fd(session));
}

ssize_t KernelIo::read(int fd, std::span<std::byte> to) {
  const ssize_t n = ::read(fd, to.data(), to.size());
  if (n >= static_cast<ssize_t>(sizeof(fuse_in_header))) {
    fuse_in_header head;
    std::memcpy(&head, to.data(), sizeof head);
    if (head.opcode == FUSE_INIT) [[unlikely]] {
      saw_init(to.first(static_cast<size_t>(n)));
      init_ = head.unique;
    }
  }
  return n;
}

void KernelIo::saw_init(std::span<const std::byte> request) {
  const auto body = request.subspan(sizeof(fuse_in_header));
  fuse_init_in init;
  if (body.size() < sizeof init) return;
  std::memcpy(&init, body.data(), sizeof init);
  kills_privileges_ = (init.flags & FUSE_HANDLE_KILLPRIV) != 0;
  maps_direct_ = (init.flags & FUSE_INIT_EXT) && (init.flags2 & kDirectIoAllowMmap);
}

void KernelIo::answer_init(std::span<iovec> pieces) {
  fuse_out_header head;
  std::memcpy(&head, pieces[0].iov_base, sizeof head);
  fuse_init_out init;
  if (head.unique == init_ && head.error == 0 && pieces.size() > 1 &&
      pieces[1].iov_len >= sizeof init) {
    std::memcpy(&init, pieces[1].iov_base, sizeof init);
    if (kills_privileges_) init.flags |= FUSE_HANDLE_KILLPRIV;
    if (maps_direct_) {
      init.flags |= FUSE_INIT_EXT;
      init.flags2 |= kDirectIoAllowMmap;
    }
    std::memcpy(pieces[1].iov_base, &init, sizeof init);
  } else {
    maps_direct_ = false;
  }
  init_ = 0;
}

ssize_t KernelIo::write(int fd, std::span<iovec> pieces) {
  if (init_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    answer_init(pieces);
  ssize_t n = 0;
  do n = ::writev(fd, pieces.data(), static_cast<int>(pieces.size()));
  while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace forebay::fuse
