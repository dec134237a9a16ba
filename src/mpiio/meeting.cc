#include "mpiio/meeting.h"

#include <algorithm>

#include "mpiio/arbiter_client.h"

namespace forebay::mpiio {
namespace {

// Up to where JointWrites begin.
uint64_t space_before(int ranks) {
  constexpr uint64_t kPage = 4096;
  const uint64_t records = ranks == 1 ? 0 : NodeRecords::space(ranks);
  return (sizeof(NodeMemory) + 2 * Gathering::space(ranks) + records + kPage - 1) / kPage * kPage;
}

bool may_join(int ranks) {
  return ranks > 1 && ranks <= std::min(JointWrites::kMostRanks, RecordWrites::kMostRanks);
}

// Memory costs what is used of it. But where it may not be so long, writes for others can be
// missed.
Result<SharedMemory> make_memory(int ranks) {
  const uint64_t bytes = space_before(ranks);
  if (may_join(ranks))
    if (auto memory =
            SharedMemory::make(bytes + JointWrites::space(ranks) + RecordWrites::space(ranks)))
      return memory;
  return SharedMemory::make(bytes, ranks == 1);
}

}  // namespace

Result<std::unique_ptr<Meeting>> Meeting::host(int ranks) {
  auto memory = make_memory(ranks);
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
  std::byte* rest = reinterpret_cast<std::byte*>(node + 1);
  for (auto* gathering : {&gathering_, &entrance_}) {
    gathering->emplace(rest, rank_, ranks_);
    rest += Gathering::space(ranks_);
  }
  if (ranks_ > 1) records_.emplace(rest);
  if (const uint64_t before = space_before(ranks_); memory_.place().bytes > before) {
    joint_.emplace(memory_.data() + before, rank_, ranks_);
    record_writes_.emplace(memory_.data() + before + JointWrites::space(ranks_), rank_, ranks_);
  }
  state_ = std::make_unique<NodeState>(*node);
}

void Meeting::renew() {
  if (rank_ == 0) NodeMemory::create(memory_.data());
  if (joint_) joint_->renew();
  if (record_writes_) record_writes_->renew();
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
