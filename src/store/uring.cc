#include "store/uring.h"

#include <liburing.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace forebay {

namespace {

constexpr unsigned kMostMemories = 4096;

}  // namespace

struct Uring::Ring {
  ~Ring() { io_uring_queue_exit(&ring); }
  // Gives the kernel all entries, of which `last` is the newest. It may be short of memory; an
  // entry that it does not take is made one that does nothing and goes with a later one.
  bool enter(io_uring_sqe* last) {
    constexpr int kMostTries = 100;
    entered.fetch_add(1, std::memory_order_release);
    for (int i = 0; i < kMostTries; ++i) {
      const int n = io_uring_submit(&ring);
      if (io_uring_sq_ready(&ring) == 0) return true;
      if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY) break;
      ::sched_yield();
    }
    io_uring_prep_nop(last);
    io_uring_sqe_set_data(last, nullptr);
    return false;
  }

  io_uring ring;
  // The kernel orders a transfer before its result; this says so to compilers and sanitizers.
  std::atomic<uint64_t> entered{0};
  std::vector<int> free_memories;
};

Uring::Uring(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}
Uring::~Uring() = default;

Result<std::unique_ptr<Uring>> Uring::open(unsigned depth) {
  // One more, for wake(). Results have twice the room, so none is ever lost.
  io_uring ring;
  if (const int failed = io_uring_queue_init(depth + 1, &ring, 0); failed < 0)
    return Error(-failed, "io_uring_setup");
  auto own = std::make_unique<Ring>();
  own->ring = ring;
  if (io_uring_register_buffers_sparse(&own->ring, kMostMemories) == 0) {
    for (int i = kMostMemories; i-- > 0;) own->free_memories.push_back(i);
  }
  return std::unique_ptr<Uring>(new Uring(std::move(own)));
}

bool Uring::submit(const Transfer& t) {
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_->ring);
  if (!sqe) return false;
  const auto count = static_cast<unsigned>(t.pieces.size());
  const iovec& first = t.pieces.front();
  const auto length = static_cast<unsigned>(first.iov_len);
  if (t.memory != kUnregistered && t.write) {
    io_uring_prep_write_fixed(sqe, t.fd, first.iov_base, length, t.at.value, t.memory);
  } else if (t.memory != kUnregistered) {
    io_uring_prep_read_fixed(sqe, t.fd, first.iov_base, length, t.at.value, t.memory);
  } else if (t.write) {
    io_uring_prep_writev(sqe, t.fd, t.pieces.data(), count, t.at.value);
  } else {
    io_uring_prep_readv(sqe, t.fd, t.pieces.data(), count, t.at.value);
  }
  io_uring_sqe_set_data(sqe, t.tag);
  return ring_->enter(sqe);
}

bool Uring::wake() {
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_->ring);
  if (!sqe) return false;
  io_uring_prep_nop(sqe);
  io_uring_sqe_set_data(sqe, nullptr);
  return ring_->enter(sqe);
}

size_t Uring::wait(std::span<Ended> ended) {
  io_uring_cqe* cqe = nullptr;
  while (const int failed = io_uring_wait_cqe(&ring_->ring, &cqe))
    FOREBAY_ASSERT(failed == -EINTR || failed == -EAGAIN, errno_name(-failed));
  constexpr unsigned kMost = 64;
  io_uring_cqe* cqes[kMost];
  const unsigned n = io_uring_peek_batch_cqe(
      &ring_->ring, cqes, static_cast<unsigned>(std::min<size_t>(kMost, ended.size())));
  for (unsigned i = 0; i < n; ++i) ended[i] = {io_uring_cqe_get_data(cqes[i]), cqes[i]->res};
  io_uring_cq_advance(&ring_->ring, n);
  (void)ring_->entered.load(std::memory_order_acquire);
  return n;
}

Result<int> Uring::add_memory(std::span<std::byte> memory) {
  if (ring_->free_memories.empty()) return Error(ENOSPC, "no registered memory is left");
  const int number = ring_->free_memories.back();
  const iovec piece{memory.data(), memory.size()};
  const int n = io_uring_register_buffers_update_tag(&ring_->ring, static_cast<unsigned>(number),
                                                     &piece, nullptr, 1);
  if (n != 1) return Error(n < 0 ? -n : ENOMEM, "io_uring_register");
  ring_->free_memories.pop_back();
  return number;
}

void Uring::remove_memory(int number) {
  const iovec nothing{};
  io_uring_register_buffers_update_tag(&ring_->ring, static_cast<unsigned>(number), &nothing,
                                       nullptr, 1);
  ring_->free_memories.push_back(number);
}

}  // namespace forebay
