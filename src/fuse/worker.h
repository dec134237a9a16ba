// What a thread that serves the kernel has of its own: memory for a request and for its reply,
// reused for every one of them, and of the kind that the Store reaches most cheaply.
#pragma once

#include <cstddef>
#include <span>

#include "core/types.h"
#include "store/store.h"

namespace forebay::fuse {

inline constexpr size_t kMostData = 1_MiB;  // of one request: the kernel's own limit (256 pages)

class Worker {
 public:
  explicit Worker(Store& store);
  ~Worker();
  Worker(const Worker&) = delete;

  // The worker of the thread that asks.
  static Worker& here();

  // Room for any request. Placed so that the data of a write begins on a page.
  std::span<std::byte> request() const { return request_.subspan(kRequestAt); }
  // Room for the data of a reply.
  std::span<std::byte> reply() const { return reply_; }

 private:
  // The heads of a write request: fuse_in_header and fuse_write_in.
  static constexpr size_t kPage = 4096, kHeads = 80, kRequestAt = kPage - kHeads;
  std::span<std::byte> get(size_t size);
  void put(std::span<std::byte> memory);

  Store& store_;
  const std::span<std::byte> request_, reply_;
};

}  // namespace forebay::fuse
