// Shortcuts: what a client and a server on one node share about files that the client reads and
// writes itself for a while (server/shortcuts.h, client/shortcuts.h).
//
// A shortcut has a word in the memory that both share. The server opens it; the client counts
// itself in before each read and write, and out after it; the server closes it when somebody else
// wants the file, and waits until nobody is in. Who finds it closed has nobody to wait for, and
// sends its request instead. A word is used again for another shortcut, of another generation.
//
// The server trusts nothing here: a client that does not count, or never counts itself out, writes
// to a file that it may write to anyhow, and others wait for it for a while and no longer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace forebay {

inline constexpr size_t kShortcuts = 48;  // of one connection at a time

// Of a file that others write to meanwhile, each by calls that the file system does as a whole: a
// piece of the file, of no more bytes than this (those who write more are served by chunks, and
// have nothing in common).
inline constexpr uint32_t kInCommon = 1 << 16;  // added to the number of such a shortcut
inline constexpr uint64_t kMostInCommon = 128 << 10;

// Of a file that is read and written around the page cache, in whole blocks. Also added.
inline constexpr uint32_t kAroundCache = 1 << 17;

// Of a file in common: memory was handed over before, the same to all of one user who have the file
// in common and know its layout, in which they may gather what they write
// (store/gathered_writes.h). Also added.
inline constexpr uint32_t kGathering = 1 << 18;
inline constexpr uint64_t kGatherSpace = (uint64_t(32) * 128 << 10) + (32 << 10);  // bytes of it

inline constexpr uint32_t kShortcutMarks = kInCommon | kAroundCache | kGathering;

class ShortcutWord {
 public:
  // ---- The server's ----
  void open(uint32_t generation) { state_.store(uint64_t(generation) << 32 | kOpen); }
  void close() { state_.fetch_and(~kOpen); }
  bool is_open(uint32_t generation) const {  // the client has not given it back
    const uint64_t now = state_.load();
    return now >> 32 == generation && (now & kOpen) != 0;
  }
  bool used(uint32_t generation) const {
    const uint64_t now = state_.load();
    return now >> 32 == generation && (now & kUsers) != 0;
  }
  // Moves on while a long request is under way.
  uint32_t progress() const { return progress_.load(std::memory_order_relaxed); }

  // ---- The client's ----
  bool enter(uint32_t generation) {
    uint64_t now = state_.load();
    do {
      if (now >> 32 != generation || !(now & kOpen) || (now & kUsers) == kUsers) return false;
    } while (!state_.compare_exchange_weak(now, now + kUser));
    return true;
  }
  void leave() { state_.fetch_sub(kUser); }
  // Given back: nobody enters any more.
  void give_back(uint32_t generation) {
    uint64_t now = state_.load();
    while (now >> 32 == generation && (now & kOpen) &&
           !state_.compare_exchange_weak(now, now & ~kOpen)) {
    }
  }
  void move_on() { progress_.fetch_add(1, std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kOpen = 1, kUser = 2, kUsers = 0xFFFF'FFFE;
  alignas(64) std::atomic<uint64_t> state_;
  std::atomic<uint32_t> progress_;
};
static_assert(sizeof(ShortcutWord) == 64 && std::atomic<uint64_t>::is_always_lock_free);

// What the client did by shortcuts, as it says: for people.
struct ShortcutTotals {
  alignas(64) std::atomic<uint64_t> reads;
  std::atomic<uint64_t> writes, bytes_read, bytes_written;
};
static_assert(sizeof(ShortcutTotals) == 64);

}  // namespace forebay
