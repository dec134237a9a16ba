#include "transport/shared_ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace forebay {

namespace {

// Walks `total` bytes of the pieces beside the ring's space from `place` on: copy(ring, piece, n).
template <class Copy>
void walk(std::span<const iovec> pieces, std::span<std::byte> ring, uint64_t place, uint64_t total,
          Copy&& copy) {
  for (const iovec& piece : pieces) {
    auto* at = static_cast<std::byte*>(piece.iov_base);
    for (uint64_t left = std::min<uint64_t>(piece.iov_len, total); left > 0;) {
      const uint64_t in_ring = place & (ring.size() - 1);
      const uint64_t n = std::min<uint64_t>(left, ring.size() - in_ring);
      copy(ring.data() + in_ring, at, n);
      at += n, place += n, left -= n, total -= n;
    }
    if (total == 0) return;
  }
}

uint64_t size_of(std::span<const iovec> pieces) {
  uint64_t sum = 0;
  for (const iovec& piece : pieces) sum += piece.iov_len;
  return sum;
}

ssize_t refused(int code) {
  errno = code;
  return -1;
}

// How an end rests.
constexpr uint32_t kAwake = 0;
constexpr uint32_t kListens = 1;  // to be rung
constexpr uint32_t kSleeps = 2;   // on the flag itself, as a futex

void futex_wake(std::atomic<uint32_t>& flag) {
  ::syscall(SYS_futex, &flag, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// A flag that the other side set, taken back: whoever rings does so once. True: it is to be rung.
bool take(std::atomic<uint32_t>& flag) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (flag.load(std::memory_order_relaxed) == kAwake) return false;
  const uint32_t was = flag.exchange(kAwake, std::memory_order_relaxed);
  if (was == kSleeps) futex_wake(flag);
  return was != kAwake && was != kSleeps;
}

void set(std::atomic<uint32_t>& flag) {
  flag.store(kListens, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

uint64_t RingWriter::room() const {
  return space_.size() - (written_ - state_->taken.load(std::memory_order_acquire));
}

bool RingWriter::has_room() const {
  return room() != 0;
}

ssize_t RingWriter::put(std::span<const iovec> bytes) {
  const uint64_t free = room();
  if (free > space_.size()) return refused(EPROTO);
  const uint64_t n = std::min(free, size_of(bytes));
  if (n == 0) return refused(EAGAIN);
  walk(bytes, space_, written_, n,
       [](std::byte* ring, const std::byte* from, uint64_t size) { memcpy(ring, from, size); });
  written_ += n;
  state_->written.store(written_, std::memory_order_release);
  return static_cast<ssize_t>(n);
}

bool RingWriter::must_ring() {
  return take(state_->reader_rests);
}

bool RingWriter::rest() {
  set(state_->writer_rests);
  return !has_room();
}

uint64_t RingReader::there() const {
  return state_->written.load(std::memory_order_acquire) - taken_;
}

bool RingReader::has_bytes() const {
  return there() != 0;
}

ssize_t RingReader::take(std::span<const iovec> space) {
  const uint64_t ready = there();
  if (ready > space_.size()) return refused(EPROTO);
  const uint64_t n = std::min(ready, size_of(space));
  if (n == 0) return refused(EAGAIN);
  walk(space, space_, taken_, n,
       [](const std::byte* ring, std::byte* to, uint64_t size) { memcpy(to, ring, size); });
  taken_ += n;
  state_->taken.store(taken_, std::memory_order_release);
  return static_cast<ssize_t>(n);
}

bool RingReader::must_ring() {
  return forebay::take(state_->writer_rests);
}

bool RingReader::rest() {
  set(state_->reader_rests);
  return !has_bytes() && !has_posts();
}

bool RingReader::sleep(std::chrono::nanoseconds most) {
  std::atomic<uint32_t>& flag = state_->reader_rests;
  uint32_t was = kListens;
  if (!flag.compare_exchange_strong(was, kSleeps)) return true;
  const timespec limit{static_cast<time_t>(most.count() / 1'000'000'000),
                       static_cast<long>(most.count() % 1'000'000'000)};
  ::syscall(SYS_futex, &flag, FUTEX_WAIT, kSleeps, &limit, nullptr, 0);
  was = kSleeps;
  return !flag.compare_exchange_strong(was, kListens);
}

void RingReader::interrupt() {
  forebay::take(state_->reader_rests);
}

}  // namespace forebay
