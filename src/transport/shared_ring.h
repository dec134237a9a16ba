// A ring of bytes in memory that two processes share: one writes, the other reads, neither trusts
// the other (paper 1, section II, forwards over the network only; a client on the server's node has
// no need of it).
//
// Each end keeps its own place in private memory and looks at the other's with suspicion: a place
// that cannot be is EPROTO, and never an address. What is read is copied out before anybody looks
// at it, so that it cannot change any more.
//
// Beside its bytes a ring carries posts: bits that stand for places elsewhere in the shared memory
// (shared_box.h). A bit that is posted again before it was taken is one post.
//
// Sleeping: whoever runs out of bytes (or of room) says so in the ring with rest(), and is rung by
// the other side, which finds that out with must_ring() after every step. Both orders are seen by
// at least one side: store, fence, load on each. A reader may also sleep on the ring itself, which
// is cheaper for both than a descriptor.
//
// Threads: one for each end.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace forebay {

// What lies in the shared memory. All zero is an empty ring.
struct RingState {
  alignas(64) std::atomic<uint64_t> written;  // bytes ever put in
  std::atomic<uint32_t> writer_rests;
  std::atomic<uint32_t> crowd;   // of others that the writer serves; a hint for who waits awake
  std::atomic<uint64_t> posted;  // bits, until they are taken
  alignas(64) std::atomic<uint64_t> taken;  // bytes ever taken out
  std::atomic<uint32_t> reader_rests;
};
static_assert(sizeof(RingState) == 128 && std::atomic<uint64_t>::is_always_lock_free);

class RingWriter {
 public:
  // The space's size is a power of two.
  RingWriter(RingState& state, std::span<std::byte> space) : state_(&state), space_(space) {}

  // Copies in as much as there is room for: the bytes, or -1 with EAGAIN (full) or EPROTO.
  ssize_t put(std::span<const iovec> bytes);
  void post(uint64_t bits) { state_->posted.fetch_or(bits, std::memory_order_release); }
  bool has_room() const;
  // The reader rests, and is to be rung; if it sleeps on the ring, that is done here. Once.
  bool must_ring();
  bool rest();  // false: there is room
  void say_crowd(uint32_t others) { state_->crowd.store(others, std::memory_order_relaxed); }
  void wake() { state_->writer_rests.store(0, std::memory_order_relaxed); }

 private:
  uint64_t room() const;  // more than the ring's size: the reader broke it
  RingState* state_;
  std::span<std::byte> space_;
  uint64_t written_ = 0;
};

class RingReader {
 public:
  RingReader(RingState& state, std::span<std::byte> space) : state_(&state), space_(space) {}

  // Copies out as much as there is: the bytes, or -1 with EAGAIN (empty) or EPROTO.
  ssize_t take(std::span<const iovec> space);
  bool has_bytes() const;
  bool has_posts() const { return state_->posted.load(std::memory_order_relaxed) != 0; }
  uint64_t take_posts() { return state_->posted.exchange(0, std::memory_order_acquire); }
  bool must_ring();  // the writer rests
  uint32_t crowd() const { return state_->crowd.load(std::memory_order_relaxed); }
  bool rest();  // false: there are bytes, or posts
  // After rest(): sleeps until the writer, or interrupt(), ends the rest, at most so long. True: it
  // was ended, and nobody rings; false: still at rest.
  bool sleep(std::chrono::nanoseconds most);
  void interrupt();  // any thread
  void wake() { state_->reader_rests.store(0, std::memory_order_relaxed); }

 private:
  uint64_t there() const;
  RingState* state_;
  std::span<std::byte> space_;
  uint64_t taken_ = 0;
};

}  // namespace forebay
