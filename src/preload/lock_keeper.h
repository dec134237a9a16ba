// The lock keeper: a small process that holds the locks of open files (flock(2), F_OFD_SETLK), in a
// session of its own.
//
// Such a lock is the open file description's: it is there until the last descriptor is closed,
// whichever process has that, and not with the process that took it. No session of a program lives
// so long, so none holds it. The first such lock starts a keeper (forebay-lock-keeper, beside this
// library), which other processes of the same user with the same configuration find at a meeting
// place: hundreds of ranks of a job share one. The description remembers which one has its locks
// (Placeholder::keeper), for all who have it by dup, fork, exec or a message.
//
// Neither trusts a name: a keeper serves its own user only, and is asked only if its own user made
// its sockets. If a stranger has taken the meeting place each process has a keeper of its own.
//
// The kernel tells the keeper when a description is no more: its memfd has no other name, so the
// end of the last descriptor and the last mapping is its deletion, which inotify(7) reports. The
// keeper itself keeps neither. It ends when nothing is left to keep.
//
// One question to a connection: a LockAsk, with a descriptor of the placeholder; one LockAnswer.
// Who waits no more shuts down its side, and is answered all the same.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>

#include "preload/open_files.h"

namespace forebay::preload {

inline constexpr char kKeeperProgram[] = "forebay-lock-keeper";

struct LockAsk {
  // `meet`: which keeper are you? Its name is the answer's offset.
  enum class What : uint32_t { lock, unlock, test, settle, meet } what = What::unlock;
  uint32_t flags = 0;  // of the request
  uint64_t offset = 0, length = 0;
};

struct LockAnswer {
  int32_t code = 0;  // 0: done
  uint32_t count = 0, shared = 0, pid = 0;
  uint64_t offset = 0, length = 0;
};

// The keeper's address: a name that is chosen by chance, and that no file system has.
struct KeeperAddress {
  sockaddr_un name = {};
  socklen_t size = 0;
  explicit KeeperAddress(uint64_t keeper);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// A lock, unlock or lock_test of an open file, by its keeper; `fd` is a descriptor of it. EINTR if
// a signal comes while it waits.
Result<Reply> ask_keeper(OpenFile& file, int fd, const Request& request);

// A description is closed here: if it was the last time, its locks are free when this returns,
// unless the server is away.
void settle_locks(uint64_t keeper);

}  // namespace forebay::preload
