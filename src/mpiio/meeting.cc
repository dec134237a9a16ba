#include "mpiio/meeting.h"

#include "mpiio/arbiter_client.h"

namespace forebay::mpiio {

Result<std::unique_ptr<Meeting>> Meeting::host(bool alone) {
  auto memory = SharedMemory::make(sizeof(NodeMemory), alone);
  if (!memory) return memory.error();
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->host_ = true;
  meeting->memory_ = std::move(*memory);
  meeting->place_ = meeting->memory_.place();
  NodeMemory::create(meeting->memory_.data());
  return meeting;
}

std::unique_ptr<Meeting> Meeting::guest(const Place& place) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->place_ = place;
  return meeting;
}

Meeting::~Meeting() {
  state_.reset();
  if (arbiter_) arbiter_->close_file(invitation_);
}

bool Meeting::near() const {
  return host_ || SharedMemory::near(place_);
}

Result<SharedState*> Meeting::state() {
  std::lock_guard lock(mutex_);
  if (state_) return state_.get();
  if (moved_) {
    auto client = ArbiterClient::connect(invitation_);
    if (!client) return client.error();
    state_ = std::move(*client);
    return state_.get();
  }
  if (!memory_) {
    auto memory = SharedMemory::attach(place_);
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
  }
  state_ = std::make_unique<NodeState>(*reinterpret_cast<NodeMemory*>(memory_.data()));
  return state_.get();
}

}  // namespace forebay::mpiio
