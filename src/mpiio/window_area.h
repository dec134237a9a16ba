// WindowArea: the collective buffer of one aggregator, in memory that the ranks of its node share.
// It has two halves, so that ranks fill (or empty) one while the other is moved to (or from) the
// Store.
//
// Windows have numbers, which go on from call to call, and from file to file; window n lies in half
// n % 2. The aggregator plans a window: it says what lies in it, of up to kAhead windows before
// they can begin. When its half is free, ranks copy what they write into it, or whoever takes it
// fills it for all who read. Each near rank visits every window once, in order, whether it has data
// in it or not, and leaves. When all have left and its bytes have been moved it is released: then
// its half is free for window n + 2.
//
// Plain bytes without pointers. A rank that dies inside keeps the others waiting: its job ends with
// it, as MPI jobs do.
#pragma once

#include <atomic>
#include <span>

#include "core/extents.h"
#include "mpiio/shared_memory.h"
#include "mpiio/signal_word.h"

namespace forebay::mpiio {

// What a window holds, beside its runs.
struct WindowAbout {
  uint64_t bytes = 0;
  uint32_t runs = 0;
  uint32_t ranks = 0;     // that visit it
  bool unshared = false;  // of a read: no two ranks want one byte
  bool last = false;      // of this call
};

class WindowArea {
 public:
  // Who has entered window n finds n + 1 planned, and may plan n + 2, since all have left n - 2.
  static constexpr uint32_t kAhead = 2;

  struct Shape {
    uint64_t buffer = 0;  // bytes of a half
    uint32_t runs = 0;    // of a window at most
    bool operator==(const Shape&) const = default;
  };
  static Result<WindowArea> make(const Shape& shape);
  static Result<WindowArea> attach(const SharedMemory::Place& place);

  const SharedMemory::Place& place() const { return memory_.place(); }
  bool own() const { return memory_.own(); }  // of this process
  explicit operator bool() const { return static_cast<bool>(memory_); }
  const Shape& shape() const { return head().shape; }
  std::byte* buffer(uint32_t window) const;

  // The aggregator: plans the next window.
  void plan(std::span<const Extent> runs, WindowAbout about);
  uint32_t planned() const { return head().planned.value.load(); }  // so far

  // Waits until a window is planned and its half is free for it.
  template <class Meanwhile>
  void enter(uint32_t window, Meanwhile&& meanwhile) {
    head().planned.wait([&](uint32_t n) { return static_cast<int32_t>(n - window) > 0; },
                        meanwhile);
    half(window).state.wait([&](uint32_t state) { return state >> kPhaseBits == number(window); },
                            meanwhile);
  }
  // Of a read. Has nobody taken it yet? Then who asks has, and fills its buffer.
  bool take(uint32_t window);
  void filled(uint32_t window, uint64_t bytes_there);
  template <class Meanwhile>
  void wait_until_filled(uint32_t window, Meanwhile&& meanwhile) {
    half(window).state.wait([&](uint32_t state) { return state == word(window, kFilled); },
                            meanwhile);
  }

  // What is found in one that was entered.
  struct Seen {
    WindowAbout about;
    uint64_t there;  // bytes of it that the file has, once it is filled
    std::span<const Extent> runs;
    std::byte* buffer;
  };
  Seen see(uint32_t window) const;
  bool others_have_left(uint32_t window) const {
    return half(window).left.value.load() + 1 == about(window).ranks;
  }
  // True: everybody has.
  bool leave(uint32_t window) {
    const uint32_t ranks = about(window).ranks;
    return half(window).left.add_and_wake_at(ranks) == ranks;
  }
  template <class Meanwhile>
  void wait_for_all(uint32_t window, Meanwhile&& meanwhile) {
    const uint32_t ranks = about(window).ranks;
    half(window).left.wait([&](uint32_t n) { return n >= ranks; }, meanwhile);
  }
  // All have left, and nobody needs its bytes here any more.
  void release(uint32_t window);

 private:
  enum Phase : uint32_t { kOpen, kTaken, kFilled };
  static constexpr uint32_t kPhaseBits = 2, kPlans = 2 * kAhead;

  struct Half {
    SignalWord state;                // of which window it is, and that one's phase
    SignalWord left;                 // ranks that have left it
    std::atomic<uint64_t> there{0};  // who only wants to know what is planned looks too early
  };
  struct Head {
    Shape shape;
    SignalWord planned;  // windows so far
    Half halves[2];
    WindowAbout plans[kPlans];
  };
  static uint32_t number(uint32_t window) { return window << kPhaseBits >> kPhaseBits; }
  static uint32_t word(uint32_t window, Phase phase) { return window << kPhaseBits | phase; }
  Head& head() const { return *reinterpret_cast<Head*>(memory_.data()); }
  Half& half(uint32_t window) const { return head().halves[window % 2]; }
  WindowAbout& about(uint32_t window) const { return head().plans[window % kPlans]; }
  Extent* runs(uint32_t window) const;

  SharedMemory memory_;
};

}  // namespace forebay::mpiio
