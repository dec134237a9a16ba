// OpenFile: what this process knows of an open file description (placeholder.h), and which
// descriptors are of it. Type-stable: an OpenFile is used again and never freed, so that a
// descriptor can be looked up without a lock while another thread closes it.
//
// Any thread. Locks: one for the list of those that are open, never held during a request.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "preload/connection.h"
#include "preload/placeholder.h"

namespace forebay::preload {

struct OpenFile {
  std::atomic<uint32_t> uses{0};  // descriptors and calls; 0: it is closed
  Placeholder* shared = nullptr;
  Handle handle;
  Right right;
  CallerRef caller;  // who opened it

  int flags() const { return static_cast<int>(shared->flags.load(std::memory_order_relaxed)); }
  bool reads() const { return (flags() & O_ACCMODE) != O_WRONLY && !(flags() & O_PATH); }
  bool writes() const { return (flags() & O_ACCMODE) != O_RDONLY && !(flags() & O_PATH); }
  Request request(Op op, uint32_t request_flags = 0) const {
    const OpInfo& info = op_info(op);
    return {.op = op,
            .flags = request_flags,
            .caller = caller,
            .handle = handle,
            .right = (info.needs | info.may) & kRight ? right : Right()};
  }
};

// One use of an open file; empty: the descriptor is not ours (any more).
class FileUse {
 public:
  explicit FileUse(int fd);
  ~FileUse();
  FileUse(const FileUse&) = delete;
  explicit operator bool() const { return file_ != nullptr; }
  OpenFile* operator->() const { return file_; }
  OpenFile& operator*() const { return *file_; }

 private:
  OpenFile* file_ = nullptr;
};

// Moves the description's offset alone, among all processes that have it.
class OffsetLock {
 public:
  explicit OffsetLock(Placeholder& shared);
  ~OffsetLock();
  OffsetLock(const OffsetLock&) = delete;

 private:
  Placeholder& shared_;
};

class OpenFiles {
 public:
  static OpenFiles& get();

  struct New {
    Handle handle;
    Right right;
    CallerRef caller;
    std::string inside, shown;
    int flags = 0;
    bool directory = false;
  };
  Result<int> add(New&& made);  // a descriptor
  bool adopt(int fd);
  void duplicated(int fd, int copy);
  void drop(OpenFile& file);  // one use fewer; closes with the last

  std::vector<Request> questions(Op op);  // one about each open file
  // The process ends: what it has open that is locked is closed, so that whoever waits for the
  // process finds the locks free that end with it.
  void close_locked();

  // Around fork(): held, and a child has all of them too.
  std::mutex& held_for_fork() { return mutex_; }
  void before_fork();

 private:
  OpenFile* take();  // under mutex_
  void close(OpenFile& file);

  std::mutex mutex_;
  std::vector<OpenFile*> open_, free_;
};

}  // namespace forebay::preload
