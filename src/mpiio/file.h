// File: an MPI file as one rank has it open. MPI_File handles are pointers to it.
//
// Threads: independent calls of several threads on one file at the same time are allowed; MPI
// itself forbids others beside a collective one. `mutex` is over the individual pointer.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mpiio/arrivals.h"
#include "mpiio/fair_lock.h"
#include "mpiio/hints.h"
#include "mpiio/kept_realms.h"
#include "mpiio/lobby.h"
#include "mpiio/meeting.h"
#include "mpiio/sieved_read.h"
#include "mpiio/size_limit.h"
#include "mpiio/view.h"
#include "mpiio/whereabouts.h"
#include "store/open_path.h"

namespace forebay::mpiio {

class Collective;
class Operation;

struct File {
  File() = default;
  ~File();
  File(const File&) = delete;

  bool reads() const { return !(amode & MPI_MODE_WRONLY); }
  bool writes() const { return !(amode & MPI_MODE_RDONLY); }
  bool several_nodes() const;
  bool sequential() const { return amode & MPI_MODE_SEQUENTIAL; }

  Request request(Op op) const;
  Result<Reply> call(Request request) const {
    return place.served ? call_within_limit(*place.store, std::move(request))
                        : place.store->call(std::move(request));
  }
  Result<uint64_t> size() const;
  // Op::read or Op::write; `memory`: absolute addresses. How many bytes there were.
  Result<uint64_t> move(Op op, Extents file, Extents memory,
                        Allocate allocate = Allocate::no) const;
  // The same below what realms keep.
  Result<uint64_t> move_in_store(Op op, Extents file, Extents memory) const;
  Result<uint64_t> size_in_store() const;
  // Writes bytes of the view, together with other ranks that do the same now (joint_writes.h).
  // False: this rank has to write them by itself.
  bool write_jointly(const plan::ViewPart& part, const plan::TiledMap& memory) const;
  // The same, of a small record whose place lies beside those of others (record_writes.h).
  bool write_record(const plan::ViewPart& part, const plan::TiledMap& memory) const;
  // What its realms keep, if they do and it counts now: for collective calls. Others hold
  // kept_lock, shared, while they use it.
  KeptRealms* kept() const { return atomic ? nullptr : kept_realms.get(); }

  void begin_operation() {
    std::lock_guard lock(beginning);
    under_way.fetch_add(1);
  }
  void end_operation() {
    under_way.fetch_sub(1);
    under_way.notify_all();
  }
  void wait_for_operations() const {
    for (int n; (n = under_way.load()) > 0;) under_way.wait(n);
  }

  Result<Outcomes> outcomes() const;
  // What this rank's ended parts of non-blocking collectives became, to the others, as far as that
  // is possible now; true: they know of all.
  bool tell_outcomes();
  // Until they do, for close, which all ranks come to: each begins first what another is ahead by.
  void wait_for_arrivals();

  // Lets go of what is MPI's. On the program's thread; the last owner may be another one.
  void release();

  // Every rank's bytes, to all of them; at most Gathering::kMostBytes of each. Called by all or
  // none.
  Fault gather(const void* mine, size_t bytes, void* all) const;
  // Takes part, with every rank of the file, in agreeing on the worst outcome: MPI_SUCCESS, or the
  // error class that some rank came with. Called by all or none.
  Fault agree(Fault mine) const;
  // The same, and MPI_ERR_NOT_SAME if the ranks came with different values.
  Fault agree(Fault mine, long long value) const;

  MPI_Comm comm = MPI_COMM_NULL;  // our own duplicate
  int rank = 0, ranks = 1;
  std::vector<uint32_t> nodes;       // by rank: the number of its node
  uint64_t default_aggregators = 0;  // as cb_nodes was set when it was opened; 0: a hint had it
  std::string name;
  int amode = 0;

  Whereabouts place;
  Opened opened;
  std::weak_ptr<const Fd> read_by, written_by;  // for plain calls (plain_call.h), if it can be
  CallerRef caller;

  View view;
  uint32_t view_number = 0;  // another one with every view
  std::unique_ptr<Collective> collective;
  // Changed by collective calls only, and whether it counts too. While all ranks hold kept_lock
  // alone, or a thread's own call could go past what another has begun to keep. None of them waits
  // for locks of atomic mode meanwhile: in atomic mode nothing is kept.
  std::unique_ptr<KeptRealms> kept_realms;
  mutable FairLock kept_lock;
  std::mutex mutex;
  MPI_Offset position = 0;  // the individual pointer, in etypes
  std::unique_ptr<Meeting> meeting;
  std::shared_ptr<Lobby> lobby;  // to which it and `comm` go in the end, or null
  // Each view has a shared pointer of its own: with a new one rank 0 sets the next to 0 before the
  // ranks meet, when nobody can be using that one.
  Slot shared_pointer = Slot(0);
  std::atomic<bool> atomic{false};
  std::atomic<int> under_way{0};  // operations, but for blocking collectives
  std::mutex beginning;           // held: none begins

  uint64_t collectives = 0;  // non-blocking ones so far
  Arrivals arrivals;         // in those

  std::shared_ptr<Operation> split;  // the split collective that was begun
  const char* split_call = nullptr;

  Hints hints;
  HintList user_hints;  // which stay on top
  ReadSieving sieving;  // and of its reads; changed by collective calls only
  enum class JointWanted : uint8_t { automatic, always, never };
  std::atomic<JointWanted> joint_writes{JointWanted::automatic};
  std::atomic<uint32_t> write_flags{0};  // what hints say of its writes
  std::atomic<uint32_t> sieve_flags{0};  // and of scattered ones
  std::atomic<uint64_t> sieve_window{0};
  void obey_hints();  // after they have changed
  void settle_hints();
  const char* why_never_sieved() const;  // its writes; nullptr: they may be
  MPI_Errhandler handler = MPI_ERRORS_RETURN;
  MPI_Fint number = 0;  // in Fortran
};

}  // namespace forebay::mpiio
