// Uring: an io_uring, thin: reads and writes go in, their results come out. liburing is behind it
// and nowhere else; built without it, open() is ENOSYS.
//
// A transfer is done as whoever the submitting thread is at that moment (its file system identity
// and capabilities), also the part that the kernel does later on threads of its own.
//
// Threads: one submits (or adds or removes memory) at a time, and one waits at a time; the two may
// be different threads.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "core/result.h"
#include "core/types.h"

namespace forebay {

class Uring {
 public:
  // For so many transfers at a time. The error says what the kernel or the build lacks: EPERM where
  // a sandbox or kernel.io_uring_disabled forbids it, ENOMEM where RLIMIT_MEMLOCK does.
  static Result<std::unique_ptr<Uring>> open(unsigned depth);
  ~Uring();
  Uring(const Uring&) = delete;

  static constexpr int kUnregistered = -1;
  struct Transfer {
    bool write = false;
    int fd = -1;
    Offset at;
    std::span<const iovec> pieces;  // stays until the transfer has ended
    int memory = kUnregistered;     // the number of registered memory that holds the only piece
    void* tag = nullptr;
  };
  // False if the kernel does not take it now. Never more than `depth` at a time.
  bool submit(const Transfer& transfer);
  // Makes wait() return a null tag. (It may also return one by itself.)
  bool wake();

  struct Ended {
    void* tag;
    int result;  // bytes, or -errno
  };
  // Waits for at least one, and fills in as many as there are.
  size_t wait(std::span<Ended> ended);

  // Memory that transfers will use often: the kernel keeps it at hand (and in memory), until it is
  // removed and the last transfer from it has ended. ENOMEM beyond RLIMIT_MEMLOCK.
  Result<int> add_memory(std::span<std::byte> memory);
  void remove_memory(int number);

 private:
  struct Ring;
  explicit Uring(std::unique_ptr<Ring> ring);
  const std::unique_ptr<Ring> ring_;
};

}  // namespace forebay
