// Requests from the kernel and replies to it, on the descriptor of a mount, as libfuse's custom
// I/O.
//
// It is here for two bits that libfuse 3.14 does not pass on: FUSE_HANDLE_KILLPRIV, which says that
// Stores drop set-id bits themselves (or the kernel would, as whoever writes, who may not be the
// owner); and FUSE_DIRECT_IO_ALLOW_MMAP (Linux 6.6),
// which lets programs map a file whose reads and writes all come to us (shared, too). Without it a
// mount has to choose between shared mappings and data that is never old. They go into the
// reply to the kernel's first request, if the kernel offered them there.
//
// Any thread; the first request is answered before there is a second.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <span>

struct fuse_session;

namespace forebay::fuse {

class KernelIo {
 public:
  // From here on the session reads and writes through us; it is mounted.
  int attach(fuse_session* session);

  // Can files be mapped that the kernel keeps nothing of?
  bool maps_direct() const { return maps_direct_.load(std::memory_order_relaxed); }

  // ---- For libfuse's functions ----
  ssize_t read(int fd, std::span<std::byte> to);
  ssize_t write(int fd, std::span<iovec> pieces);

 private:
  void saw_init(std::span<const std::byte> request);
  void answer_init(std::span<iovec> pieces);

  std::atomic<uint64_t> init_{0};  // the number of the first request, while it is unanswered
  std::atomic<bool> maps_direct_{false};
  bool kills_privileges_ = false;
};

}  // namespace forebay::fuse
