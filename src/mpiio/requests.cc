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
    waiting_[*request] = operation;
    count_.store(waiting_.size(), std::memory_order_release);
  }
  Operation::begin(operation);
  return MPI_SUCCESS;
}

std::shared_ptr<Operation> Requests::find(MPI_Request request) {
  std::lock_guard lock(mutex_);
  auto it = waiting_.find(request);
  return it == waiting_.end() ? nullptr : it->second;
}

void Requests::complete(MPI_Request request, Operation& operation) {
  {
    std::lock_guard lock(mutex_);
    if (waiting_.erase(request) == 0) return;  // another thread was faster
    count_.store(waiting_.size(), std::memory_order_release);
  }
  operation.settle();
  PMPI_Grequest_complete(request);
}

}  // namespace forebay::mpiio
