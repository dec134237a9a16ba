// SmallMemory: the heap that small reads and short extent lists of an export may take together,
// beside its pool.
//
// What is small is not worth a buffer of the pool, and does not wait for memory: it has its share
// at once, or goes another way. A read then goes through the pool as a large one does (bulk.h), and
// a list is forgotten and pulled again (list_pull.h). So nothing ever waits for a share, whatever
// those do who hold one, and memory is bounded however many clients there are.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace forebay::server {

class SmallMemory {
 public:
  explicit SmallMemory(uint64_t most) : most_(most) {}

  // A part of it. Movable; gives it back when destroyed.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept {
      release();
      from_ = std::move(other.from_);
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    ~Share() { release(); }

    explicit operator bool() const { return from_ != nullptr; }
    void release() {
      if (const auto from = std::exchange(from_, nullptr)) from->used_.fetch_sub(bytes_);
    }

   private:
    friend class SmallMemory;
    std::shared_ptr<SmallMemory> from_;
    uint64_t bytes_ = 0;
  };

  // None, if there is not enough left.
  static Share take(const std::shared_ptr<SmallMemory>& from, uint64_t bytes) {
    Share share;
    if (from->used_.fetch_add(bytes) + bytes > from->most_) {
      from->used_.fetch_sub(bytes);
      return share;
    }
    share.from_ = from;
    share.bytes_ = bytes;
    return share;
  }

  uint64_t most() const { return most_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const uint64_t most_;
  std::atomic<uint64_t> used_{0};
};

}  // namespace forebay::server
