#include "mpiio/meeting.h"

#include "mpiio/arbiter_client.h"

namespace forebay::mpiio {

Result<std::unique_ptr<Meeting>> Meeting::host(int ranks) {
  const bool alone = ranks == 1;
  auto memory = SharedMemory::make(
      sizeof(NodeMemory) + Gathering::space(ranks) + (alone ? 0 : NodeRecords::space(ranks)),
      alone);
  if (!memory) return memory.error();
  NodeMemory::create(memory->data());
  std::unique_ptr<Meeting> meeting(new Meeting(0, ranks));
  meeting->place_ = memory->place();
  meeting->enter(std::move(*memory));
  return meeting;
}

std::unique_ptr<Meeting> Meeting::guest(const Place& place, int rank, int ranks) {
  std::unique_ptr<Meeting> meeting(new Meeting(rank, ranks));
  meeting->place_ = place;
  return meeting;
}

Meeting::~Meeting() {
  state_.reset();
  if (arbiter_) arbiter_->close_file(invitation_);
}

void Meeting::enter(SharedMemory memory) {
  memory_ = std::move(memory);
  auto* node = reinterpret_cast<NodeMemory*>(memory_.data());
  gathering_.emplace(node + 1, rank_, ranks_);
  std::byte* rest = reinterpret_cast<std::byte*>(node + 1) + Gathering::space(ranks_);
  if (ranks_ > 1) records_.emplace(rest);
  state_ = std::make_unique<NodeState>(*node);
}

bool Meeting::near() {
  if (memory_) return true;
  if (!SharedMemory::near(place_)) return false;
  auto memory = SharedMemory::attach(place_);
  if (memory) enter(std::move(*memory));
  return memory.has_value();
}

void Meeting::move(std::unique_ptr<AttrState> served) {
  moved_ = true;
  served_ = served.get();
  state_ = std::move(served);
}

void Meeting::move(const Invitation& invitation, Arbiter* arbiter) {
  invitation_ = invitation;
  arbiter_ = arbiter;
  moved_ = true;
  state_.reset();
}

Result<SharedState*> Meeting::state() {
  std::lock_guard lock(mutex_);
  if (!state_) {
    auto client = ArbiterClient::connect(invitation_);
    if (!client) return client.error();
    state_ = std::move(*client);
  }
  return state_.get();
}

}  // namespace forebay::mpiio
