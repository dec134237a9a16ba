// Operation: a data call that goes on in the background (background.h), until the program's thread
// learns that it has ended.
//
// Owners: the request that the program has, and the background while it works. A file is not closed
// while any is under way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "mpiio/transfer.h"

namespace forebay::mpiio {

class Operation {
 public:
  Operation(std::shared_ptr<File> file, Direction direction, const char* call)
      : file_(std::move(file)), call_(call), transfer_(*file_, direction) {}

  Transfer& transfer() { return transfer_; }
  File& file() { return *file_; }
  const char* call() const { return call_; }

  // In the background, or at once if it has failed already.
  static void begin(const std::shared_ptr<Operation>& operation);

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void wait() const { ended_.wait(false, std::memory_order_acquire); }
  bool wait_a_moment();  // has it ended by then?
  // Once, on the program's thread, after it has ended.
  void settle();

 private:
  void run();

  const std::shared_ptr<File> file_;
  const char* const call_;
  Transfer transfer_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace forebay::mpiio
