// Meeting: where the ranks of an open file find the state that they share (shared_state.h). On one
// node it is memory of rank 0, which the others map through /proc; nothing of it has a name, so
// nothing stays behind. On several nodes it is at the file's server, or, if it has none, an Arbiter
// of rank 0.
//
// Two steps, because they are collective: rank 0 makes a Place and broadcasts it, each rank says
// whether it is near (on that node); if any is not, rank 0 tells all a cookie for the server, or
// invites them to an arbiter. Neither is asked for anything before the first use: most files never
// share a pointer.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "core/result.h"
#include "mpiio/arbiter.h"
#include "mpiio/attr_state.h"
#include "mpiio/gathering.h"
#include "mpiio/joint_writes.h"
#include "mpiio/node_records.h"
#include "mpiio/node_state.h"
#include "mpiio/record_writes.h"
#include "mpiio/shared_memory.h"

namespace forebay::mpiio {

class Meeting {
 public:
  using Place = SharedMemory::Place;  // plain bytes, to be broadcast

  // Of rank 0.
  static Result<std::unique_ptr<Meeting>> host(int ranks);
  // Of the others.
  static std::unique_ptr<Meeting> guest(const Place& place, int rank, int ranks);
  ~Meeting();
  Meeting(const Meeting&) = delete;

  const Place& place() const { return place_; }
  // Is this rank on that node, and allowed to look into rank 0? Then it does from now on.
  bool near();
  // For the next file, when this one is closed on all ranks, which are near: on rank 0 first.
  void renew();
  // Not all ranks are near: from now on it is at the server,
  void move(std::unique_ptr<AttrState> served);
  // or at the arbiter.
  // `arbiter`: of rank 0, which forgets the file in the end; null elsewhere.
  void move(const Invitation& invitation, Arbiter* arbiter);

  // Connects at the first call, if it is at the arbiter; any thread.
  Result<SharedState*> state();
  // If it is at the server; else null.
  AttrState* served() { return served_; }
  // If all ranks are near; else null.
  Gathering* gathering() { return moved_ || !gathering_ ? nullptr : &*gathering_; }
  // For what is not of the file; all ranks are near.
  Gathering& entrance() { return *entrance_; }
  const NodeRecords* records() const { return moved_ || !records_ ? nullptr : &*records_; }
  // The same, and there was memory for it.
  JointWrites* joint_writes() { return moved_ || !joint_ ? nullptr : &*joint_; }
  RecordWrites* record_writes() { return moved_ || !record_writes_ ? nullptr : &*record_writes_; }

 private:
  Meeting(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  void enter(SharedMemory memory);

  const int rank_, ranks_;
  Place place_;
  // A NodeMemory, then the space of two Gatherings, of NodeRecords, and perhaps of JointWrites and
  // RecordWrites.
  SharedMemory memory_;
  std::optional<Gathering> gathering_, entrance_;
  std::optional<NodeRecords> records_;  // unless there is but one rank
  std::optional<JointWrites> joint_;
  std::optional<RecordWrites> record_writes_;
  bool moved_ = false;
  Invitation invitation_;
  Arbiter* arbiter_ = nullptr;
  AttrState* served_ = nullptr;  // which is state_
  std::mutex mutex_;
  std::unique_ptr<SharedState> state_;
};

}  // namespace forebay::mpiio
