// Survives faults in a shared mapping of a file. A page of such a mapping may be gone when it is
// touched: somebody cut the file short, the disk is full, the device failed; the kernel then sends
// SIGBUS to the thread. A BusGuard is what makes of that a return value.
//
// The signal's handler belongs to the whole process, which is an application's: ours is there only
// while some thread has a guard, and what it finds that is no fault of a guarded copy goes to the
// handler that was there before, as if ours were not. A handler that the application installs while
// a guard lives stays; faults under that guard are then the application's too.
//
// Any thread may have guards; one at a time.
#pragma once

#include <signal.h>

#include <cstddef>
#include <span>

namespace forebay::posix {

class BusGuard {
 public:
  BusGuard();
  ~BusGuard();
  BusGuard(const BusGuard&) = delete;

  // Calls copy(context); false if a fault in `window` ended it. It is then left where it was,
  // nothing is destroyed, and of what it changed only volatile objects have known values.
  bool run(std::span<const std::byte> window, void (*copy)(void*), void* context);

 private:
  sigset_t mask_;  // the thread's own: a fault whose signal is blocked would kill the process
};

}  // namespace forebay::posix
