#include "mpiio/operation.h"

#include <thread>

#include "mpiio/outcomes.h"
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

Result<Outcomes> outcomes_of(const File& file) {
  auto state = file.meeting->state();
  if (!state) return state.error();
  return Outcomes(**state, static_cast<uint64_t>(file.ranks));
}

}  // namespace

void Operation::be_collective() {
  if (file_->ranks > 1) number_ = file_->collectives++;
}

void Operation::begin(const std::shared_ptr<Operation>& operation) {
  operation->file_->under_way.fetch_add(1);
  if (operation->transfer_.fault()) return operation->run();
  Process::get().background().begin([operation] { operation->run(); });
}

void Operation::run() {
  transfer_.run();
  if (number_) arrive();
  {
    std::lock_guard lock(mutex_);
    moved_.store(true, std::memory_order_release);
    moved_.notify_all();
    changed_.notify_all();
  }
  file_->end_operation();
}

void Operation::arrive() {
  auto outcomes = outcomes_of(*file_);
  auto arrived = outcomes
                     ? outcomes->arrive(*number_, static_cast<uint32_t>(transfer_.fault().code))
                     : Result<void>(outcomes.error());
  if (!arrived) of_all_ = unreachable(arrived.error());
}

bool Operation::ended() {
  return moved() && (!number_ || alone_ || agreed());
}

bool Operation::agreed() {
  const auto now = std::chrono::steady_clock::now();
  if (of_all_ || !file_->meeting) return true;  // closed: then all ranks' parts have ended
  if (now < next_look_) return false;
  next_look_ = now + kBetweenLooks;
  auto outcomes = outcomes_of(*file_);
  auto worst =
      outcomes ? outcomes->worst(*number_) : Result<std::optional<uint32_t>>(outcomes.error());
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
    if (!changed_.wait_for(lock, kMoment, [&] { return moved(); })) return false;
  }
  if (ended()) return true;
  std::this_thread::sleep_for(kBetweenLooks);
  return ended();
}

void Operation::settle() {
  transfer_.finish();
  if (of_all_) transfer_.fail(of_all_);
}

}  // namespace forebay::mpiio
