// WindowArea: the collective buffer of one aggregator, in memory that the ranks of its node share.
// It has two halves, so that ranks fill (or empty) one while the aggregator moves the other to (or
// from) the Store.
//
// Windows have numbers, which go on from call to call, and from file to file; window n lies in half
// n % 2. The aggregator opens a window when it has said what lies in it; each near rank visits
// every window once, in order, whether it has data in it or not, and leaves. Half n % 2 is free for
// window n + 2 when all have left window n, and the aggregator is done with it.
//
// Plain bytes without pointers. A rank that dies inside keeps the others waiting: its job ends with
// it, as MPI jobs do.
#pragma once

#include <span>

#include "core/extents.h"
#include "mpiio/shared_memory.h"
#include "mpiio/signal_word.h"

namespace forebay::mpiio {

// What a window holds, beside its runs.
struct WindowAbout {
  uint64_t bytes = 0;
  uint64_t end = kMaxOffset;  // of a read: the file ends here
  uint32_t runs = 0;
  bool last = false;  // of this call
};

class WindowArea {
 public:
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

  // The aggregator: opens the next window; its half must be free.
  // `ranks`: how many will visit it.
  void open(std::span<const Extent> runs, WindowAbout about, uint32_t ranks);
  // Waits until all have left the window, which is one of the last two; not at all for one before
  // the first.
  template <class Meanwhile>
  void wait_for_all(uint32_t window, Meanwhile&& meanwhile) {
    const uint32_t ranks = half(window).ranks;
    half(window).left.wait([&](uint32_t n) { return n >= ranks; }, meanwhile);
  }

  // A visitor: what it finds when the window is open.
  struct Seen {
    WindowAbout about;
    std::span<const Extent> runs;
    std::byte* buffer;
  };
  template <class Meanwhile>
  Seen enter(uint32_t window, Meanwhile&& meanwhile) {
    head().opened.wait([&](uint32_t n) { return static_cast<int32_t>(n - window) > 0; }, meanwhile);
    return seen(window);
  }
  void leave(uint32_t window) { half(window).left.add_and_wake_at(half(window).ranks); }
  uint32_t opened() const { return head().opened.value.load(); }

 private:
  struct Half {
    SignalWord left;     // ranks that have left the window
    uint32_t ranks = 0;  // that visit it
    WindowAbout about;
  };
  struct Head {
    Shape shape;
    SignalWord opened;  // windows so far
    Half halves[2];
  };
  Head& head() const { return *reinterpret_cast<Head*>(memory_.data()); }
  Half& half(uint32_t window) const { return head().halves[window % 2]; }
  Extent* runs(uint32_t window) const;
  Seen seen(uint32_t window) const;

  SharedMemory memory_;
};

}  // namespace forebay::mpiio
