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
  {
    std::lock_guard lock(mutex_);
    ended_.store(true, std::memory_order_release);
    ended_.notify_all();
    changed_.notify_all();
  }
  file_->under_way.fetch_sub(1);
  file_->under_way.notify_all();
}

bool Operation::wait_a_moment() {
  constexpr auto kMoment = std::chrono::microseconds(500);
  if (ended()) return true;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kMoment, [&] { return ended(); });
}

void Operation::settle() {
  transfer_.finish();
}

}  // namespace forebay::mpiio
