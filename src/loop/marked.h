// Descriptors that can be known again.
//
// A library has descriptors in a process that is not its own. A program may close all that it does
// not know (a daemon does, and many who are about to exec), and open files of its own by the same
// numbers: what is then written or closed by number is the program's. So a descriptor is marked,
// where the kernel keeps a mark and nobody else looks: the signal of asynchronous I/O (F_SETSIG,
// fcntl(2)), which is never sent because that is not switched on. It belongs to the open file, so
// copies and those that were sent to us have it too.
//
// Another thread may close it between the look and the use: so it is a guard, not a promise.
#pragma once

#include <fcntl.h>

namespace forebay {

inline constexpr int kDescriptorMark = 61;

// False: this system keeps no marks.
inline bool mark_descriptor(int fd) {
  return ::fcntl(fd, F_SETSIG, kDescriptorMark) == 0;
}
inline bool is_marked(int fd) {
  return ::fcntl(fd, F_GETSIG) == kDescriptorMark;
}

}  // namespace forebay
