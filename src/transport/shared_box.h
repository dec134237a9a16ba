// Boxes: small writes of a client and their answers, each at a fixed place of the memory that it
// shares with the server (shared_region.h). A box is a request without a frame: nothing is encoded,
// queued, copied out of a ring or decoded, and its data is written from where the client has put
// it. Which requests are worth one is the client's choice; each could as well be a frame.
//
// Box i belongs to slot i of the session. The client fills it and posts its bit (RingWriter::post);
// until its answer has come the box is the server's. The answer is the server's half of the head
// and the same bit, posted back; or a frame, as of any other request.
//
// The server copies the client's half before it looks at it. The bytes of the data it never looks
// at: they may change while they are written, to their owner's harm only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace forebay {

inline constexpr size_t kBoxes = 16;
inline constexpr uint32_t kBoxBytes = 32 << 10;  // of data
inline constexpr size_t kBoxNames = 384;

// The client's half: a write of `length` bytes at `offset`.
struct BoxRequest {
  uint64_t sequence;
  uint64_t offset;
  uint16_t length;
  uint16_t stable;  // 1: with kFlagStable
  uint16_t handle_size, right_size;
  std::byte names[kBoxNames];  // the handle, then the right
};

// The server's: it has been done. The sequence is there last: when a connection has ended, answers
// are looked for that may not have been posted.
struct BoxAnswer {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> verifier;  // as Reply::verifier

  void put(uint64_t of, uint64_t value) {
    verifier.store(value, std::memory_order_relaxed);
    sequence.store(of, std::memory_order_release);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(kBoxBytes <= UINT16_MAX);

struct BoxHead {
  alignas(64) BoxRequest request;
  alignas(64) BoxAnswer answer;
};
static_assert(sizeof(BoxHead) == 512);

}  // namespace forebay
