// Operation: a data call that goes on in the background (background.h), until the program's thread
// learns that it has ended. One that is collective has ended when it has on every rank; so all
// learn of the worst outcome (outcomes.h), which may take a rank that is far ahead some time
// (arrivals.h).
//
// Owners: the request that the program has, and the background while it works. A file is not closed
// while any is under way. All is called on the program's thread, but for what the background runs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "mpiio/transfer.h"

namespace forebay::mpiio {

class Operation {
 public:
  Operation(std::shared_ptr<File> file, Direction direction, const char* call)
      : file_(std::move(file)), call_(call), transfer_(*file_, direction) {}

  Transfer& transfer() { return transfer_; }
  File& file() { return *file_; }
  const char* call() const { return call_; }

  // Before it begins: it is the next non-blocking collective of its file.
  void be_collective();
  // In the background, or at once if it has failed already.
  static void begin(const std::shared_ptr<Operation>& operation);
  // Instead of begin(): its transfer has been done.
  void was_done() { moved_.store(true, std::memory_order_release); }

  bool ended();
  void wait() const { moved_.wait(false, std::memory_order_acquire); }  // for this rank's part
  bool wait_a_moment();                                                 // has it ended by then?
  void forsake() { alone_ = true; }  // the other ranks' parts are of no interest any more
  // Once, on the program's thread, after it has ended.
  void settle();

 private:
  static void run(const std::shared_ptr<Operation>& operation);
  static void arrive(const std::shared_ptr<Operation>& operation);
  void end_part();
  bool moved() const { return moved_.load(std::memory_order_acquire); }
  bool may_look();
  bool agreed();

  const std::shared_ptr<File> file_;
  const char* const call_;
  Transfer transfer_;
  std::optional<uint64_t> number_;  // of a collective
  bool alone_ = false;
  Fault of_all_;  // worse than ours, or why we cannot know
  std::chrono::steady_clock::time_point next_look_{};
  std::atomic<bool> moved_{false};  // this rank's part, and the others can know
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace forebay::mpiio
