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
  std::shared_ptr<Operation> find(MPI_Request request);  // null: not ours

  // Completes the request of an operation that has ended, if nobody did: from now on MPI's own
  // functions see it as complete. It stays here, because they need not hand it back yet.
  void complete(MPI_Request request, Operation& operation);
  // MPI has handed it back to the program, and the handle may be another's already.
  void forget(MPI_Request request, const Operation& operation);

 private:
  struct Entry {
    std::shared_ptr<Operation> operation;
    bool complete = false;
  };
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::map<MPI_Request, Entry> held_;
};

}  // namespace forebay::mpiio
