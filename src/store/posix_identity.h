// Who a thread is to the file system. Run by root, the posix store acts as its callers by the raw
// system calls setfsuid, setfsgid and setgroups, which change one thread only (glibc's wrappers of
// setgroups change all).
//
// A change costs microseconds (of capabilities too), so it is lazy: a thread stays who it was last
// until somebody else is needed. Only the file system identity and the supplementary groups change;
// the effective uid, and with it what the process may do otherwise, stays. The kernel takes the
// file system capabilities (DAC override and the like) from a thread whose fsuid leaves 0 and gives
// them back on return.
//
// Invariants:
//  1. All changes of a thread's fsuid, fsgid, groups and capabilities go through here: the thread's
//     state is remembered, not asked for. A process that changes its ids does so before the first
//     call.
//  2. `unprivileged` never changes an id and serves its own uid only; one of an application's
//     process leaves the capabilities alone too.
#pragma once

#include "core/op.h"

namespace forebay::posix {

class Identity {
 public:
  // Can this process act as others? Tries it on this thread, and undoes it.
  static Identity probe();
  // The process as it is, to act for itself: nothing is ever changed.
  static Identity of_application();

  bool privileged() const { return privileged_; }
  uint32_t own_uid() const { return own_uid_; }

  // EPERM if we cannot act for this caller. No system call: for operations that need no identity.
  Result<void> serves(const Caller& caller) const;
  // From here on this thread acts as the caller.
  Result<void> become(const Caller& caller) const;
  // From here on this thread acts with the server's own rights (for root: all).
  void become_server() const;
  // For data calls with a granted descriptor, which need no identity: only makes sure that the
  // thread does not act as root for another, because file systems let fsuid 0 into their reserved
  // blocks.
  void leave_root(const Caller& caller) const;
  // From here on this thread has no CAP_FSETID and no CAP_SYS_RESOURCE in effect, so that writes
  // clear set-id bits, and quotas and reserved blocks hold, whoever runs the server.
  void reduce() const;
  // The capabilities for an operation on paths, done as the caller: root keeps all of them.
  void reduce_unless_root(const Caller& caller) const;

 private:
  bool privileged_ = false;
  bool application_ = false;
  uint32_t own_uid_ = 0;
};

// For the time of one blocking call on somebody else's thread, which gets its identity back. Its
// capabilities stay reduced: putting them back each time would cost more than most writes.
class BorrowedThread {
 public:
  explicit BorrowedThread(const Identity& identity);
  ~BorrowedThread();
  BorrowedThread(const BorrowedThread&) = delete;

 private:
  const bool changes_;
};

}  // namespace forebay::posix
