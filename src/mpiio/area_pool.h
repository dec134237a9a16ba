// AreaPool: window areas that were used and may be again, by another file. A new one costs all
// ranks of its node a fault for each of its pages, which takes as long as to write some megabytes:
// programs that open a file for each checkpoint would pay it every time.
//
// An area that a file has used is its owner's to offer to the next file; those who had attached to
// it keep it as guests, and know it by its mark when they are told of it again. Bounded: the oldest
// go, and what is large is not kept. A guest's memory stays as long as any process keeps it.
//
// Any thread.
#pragma once

#include <deque>
#include <mutex>

#include "mpiio/window_area.h"

namespace forebay::mpiio {

class AreaPool {
 public:
  static constexpr size_t kMostAreas = 16;
  static constexpr uint64_t kMostBytes = 8_MiB;  // of one

  // One of our own that nobody uses: kept, or new.
  Result<WindowArea> make(const WindowArea::Shape& shape);
  // Another process's, or our own.
  Result<WindowArea> attach(const SharedMemory::Place& place);
  // Nobody uses it any more; of one that another process owns, not this process.
  void give_back(WindowArea area);

 private:
  template <class Wanted>
  WindowArea take(Wanted&& wanted);

  std::mutex mutex_;
  std::deque<WindowArea> kept_;  // the oldest first
};

}  // namespace forebay::mpiio
