// SharedPages: memory of a memfd that two processes share, mapped whole.
//
// Whoever makes it seals its size, so that nobody can shrink it under the other's feet. Its pages
// become resident as they are touched. What lies in it may change at any time. (A process that
// punches holes into it on a machine without memory left can still fault whoever touches them.)
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/fd.h"
#include "core/result.h"

namespace forebay {

class SharedPages {
 public:
  static constexpr uint64_t kPage = 4096;

  static Result<std::shared_ptr<SharedPages>> create(uint64_t bytes);
  // What another process made. EINVAL if it is not of that size, not of ordinary pages, or could
  // shrink.
  static Result<std::shared_ptr<SharedPages>> adopt(Fd memory, uint64_t bytes);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  // -1: it was dropped, or the program has closed it (loop/marked.h).
  int descriptor() const;
  void drop_descriptor();  // the mapping stays

 private:
  SharedPages(Fd memory, std::span<std::byte> bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  static Result<std::shared_ptr<SharedPages>> map(Fd memory, uint64_t bytes);

  Fd memory_;
  bool marked_ = false;
  const std::span<std::byte> bytes_;
};

}  // namespace forebay
