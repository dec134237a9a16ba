#include "mpiio/operation.h"

#include <thread>

#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

// To look at what ranks of several nodes share is a round trip.
constexpr auto kBetweenLooks = std::chrono::microseconds(50);
constexpr auto kMoment = std::chrono::microseconds(500);

Fault unreachable(const Error& error) {
  return {MPI_ERR_IO,
          "the ranks of the file cannot tell each other how it went: " + error.message()};
}

}  // namespace

void Operation::be_collective() {
  if (file_->ranks > 1) number_ = file_->collectives++;
}

void Operation::begin(const std::shared_ptr<Operation>& operation) {
  operation->file_->begin_operation();
  if (operation->transfer_.fault()) return run(operation);
  Process::get().background().begin([operation] { run(operation); });
}

void Operation::run(const std::shared_ptr<Operation>& operation) {
  operation->transfer_.run();
  if (operation->number_)
    arrive(operation);
  else
    operation->end_part();
  operation->file_->end_operation();
}

void Operation::end_part() {
  std::lock_guard lock(mutex_);
  moved_.store(true, std::memory_order_release);
  moved_.notify_all();
  changed_.notify_all();
}

void Operation::arrive(const std::shared_ptr<Operation>& operation) {
  const auto& file = operation->file_;
  file->arrivals.add(*operation->number_, static_cast<uint32_t>(operation->transfer_.fault().code),
                     [operation](Result<void> told) {
                       if (!told) operation->of_all_ = unreachable(told.error());
                       operation->end_part();
                     });
  if (file->tell_outcomes()) return;
  Process::get().background().retry(file.get(), [weak = std::weak_ptr(file)] {
    const auto open = weak.lock();
    return !open || open->tell_outcomes();
  });
}

bool Operation::ended() {
  if (!moved() && number_ && may_look()) file_->tell_outcomes();
  return moved() && (!number_ || alone_ || agreed());
}

bool Operation::may_look() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return false;
  next_look_ = now + kBetweenLooks;
  return true;
}

bool Operation::agreed() {
  if (of_all_ || !file_->meeting) return true;  // closed: then all ranks' parts have ended
  if (!may_look()) return false;
  auto outcomes = file_->outcomes();
  auto worst = outcomes ? file_->arrivals.worst(*outcomes, *number_)
                        : Result<std::optional<uint32_t>>(outcomes.error());
  if (!worst) of_all_ = unreachable(worst.error());
  if (!worst || !*worst) return !worst;
  const int code = static_cast<int>(**worst);
  const Fault& mine = transfer_.fault();
  if (code != mine.code) of_all_ = {code, mine ? mine.text : "another rank failed"};
  alone_ = true;  // known
  return true;
}

bool Operation::wait_a_moment() {
  if (!moved()) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kMoment, [&] { return moved(); });
  }
  if (ended()) return true;
  if (!moved()) return false;
  std::this_thread::sleep_for(kBetweenLooks);
  return ended();
}

void Operation::settle() {
  transfer_.finish();
  if (of_all_) transfer_.fail(of_all_);
}

}  // namespace forebay::mpiio
