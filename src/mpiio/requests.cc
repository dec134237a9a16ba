#include "mpiio/requests.h"

namespace forebay::mpiio {
namespace {

using Held = std::shared_ptr<Operation>;

int query(void* state, MPI_Status* status) {
  const uint64_t moved = (*static_cast<Held*>(state))->transfer().moved();
  PMPI_Status_set_elements_x(status, MPI_BYTE, static_cast<MPI_Count>(moved));
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;  // an error here would end the job: the functions that wait return it
}

int release(void* state) {
  delete static_cast<Held*>(state);
  return MPI_SUCCESS;
}

int cancel(void*, int) {
  return MPI_SUCCESS;  // it goes on: MPI lets a cancel have no effect
}

}  // namespace

int Requests::start(std::shared_ptr<Operation> operation, MPI_Request* request) {
  auto* state = new Held(operation);
  if (int code = PMPI_Grequest_start(query, release, cancel, state, request)) {
    delete state;
    return code;
  }
  {
    std::lock_guard lock(mutex_);
    held_[*request] = {operation};
    count_.store(held_.size(), std::memory_order_release);
  }
  Operation::begin(operation);
  return MPI_SUCCESS;
}

std::shared_ptr<Operation> Requests::find(MPI_Request request) {
  std::lock_guard lock(mutex_);
  auto it = held_.find(request);
  return it == held_.end() ? nullptr : it->second.operation;
}

void Requests::complete(MPI_Request request, Operation& operation) {
  {
    std::lock_guard lock(mutex_);
    auto it = held_.find(request);
    if (it == held_.end() || it->second.operation.get() != &operation || it->second.complete)
      return;
    it->second.complete = true;
  }
  operation.settle();
  PMPI_Grequest_complete(request);
}

void Requests::forget(MPI_Request request, const Operation& operation) {
  std::lock_guard lock(mutex_);
  auto it = held_.find(request);
  if (it == held_.end() || it->second.operation.get() != &operation) return;
  held_.erase(it);
  count_.store(held_.size(), std::memory_order_release);
}

}  // namespace forebay::mpiio
