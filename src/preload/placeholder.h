// What the kernel knows of an open file of ours: a descriptor of the kind O_PATH on a memfd, one
// memfd for each open file description. So it is duplicated, inherited and closed as any other, and
// a program that we are not in (a static one, one without the preload) cannot read or write it by
// mistake: the kernel says EBADF.
//
// The memfd's content is what the processes share that have the description: its offset and status
// flags, and how a process that gets it by exec finds the file again: handle and right, which are
// good in any session.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace forebay::preload {

inline constexpr char kPlaceholderName[] = "forebay-file";
inline constexpr char kPlaceholderLink[] = "/memfd:forebay-file";   // in /proc/self/fd
inline constexpr uint64_t kPlaceholderMagic = 0x31796162'65726f66;  // "forebay1"

struct Placeholder {
  uint64_t magic;
  uint64_t id;                    // random: the owner of its locks
  std::atomic<uint64_t> keeper;   // who has them (lock_keeper.h); 0: there were none yet
  std::atomic<uint32_t> kept;     // it has had one
  std::atomic<uint32_t> owner;    // the thread that moves the offset; 0: nobody
  std::atomic<uint32_t> waiters;  // for that
  std::atomic<uint64_t> offset;
  std::atomic<uint32_t> flags;  // O_ACCMODE, O_APPEND, O_DSYNC ...: as F_GETFL gives them
  std::atomic<uint32_t> users;  // processes, those that died included
  uint32_t uid, gid;            // who opened it
  uint32_t directory;
  uint32_t handle_size, right_size, shown_size, inside_size;
  char handle[4096 + 256];
  char right[256];
  char shown[4096];
  char inside[4096];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr size_t kPlaceholderSize = (sizeof(Placeholder) + 4095) / 4096 * 4096;

}  // namespace forebay::preload
