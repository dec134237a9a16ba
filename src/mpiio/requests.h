// Requests: the non-blocking operations that the program holds an MPI_Request for.
//
// A request is one of MPI's generalized requests, so that it is as good as any other in the
// program's arrays. Nobody but the program's own thread completes it: the functions that wait or
// test are ours (request_calls.cc), look here first, and complete what has ended in the background.
// So it works at every thread level, and MPI is never called from elsewhere.
//
// Any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "mpiio/operation.h"

namespace forebay::mpiio {

class Requests {
 public:
  // Begins the operation.
  int start(std::shared_ptr<Operation> operation, MPI_Request* request);

  // Is there any at all? One load, for the sake of programs that never use one.
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  std::shared_ptr<Operation> find(MPI_Request request);  // null: not ours, or complete

  // Completes the request of an operation that has ended: MPI's own functions see it as complete.
  void complete(MPI_Request request, Operation& operation);

 private:
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::map<MPI_Request, std::shared_ptr<Operation>> waiting_;
};

}  // namespace forebay::mpiio
