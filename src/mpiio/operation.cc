#include "mpiio/operation.h"

#include "mpiio/process.h"

namespace forebay::mpiio {

void Operation::begin(const std::shared_ptr<Operation>& operation) {
  operation->file_->under_way.fetch_add(1);
  if (operation->transfer_.fault()) return operation->run();
  Process::get().background().begin([operation] { operation->run(); });
}

void Operation::run() {
  transfer_.run();
  file_->under_way.fetch_sub(1);
  ended_.store(true, std::memory_order_release);
  ended_.notify_all();
}

void Operation::settle() {
  transfer_.finish();
}

}  // namespace forebay::mpiio
