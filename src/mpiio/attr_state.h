// AttrState: the SharedState of ranks on several nodes whose file is at a server: its values are
// attributes of the file (docs/shared-state.md), its locks are the file's at the server. (After
// "paper 4", shared file pointers in IOFSL.)
//
// All ranks of a file have the same cookie, random, so that several opens of one file share
// nothing. A value is created by who first changes it; until then it is 0. Their names begin with
// kTemporary, so that the servers forget them when nobody has the file open any more, however a
// job ends; a job that ends well removes them itself, by remove() on one rank, when no other uses
// them any more.
//
// Every change is done once, whoever is restarted on the way. A value that this rank has seen and
// that is not there any more is ESTALE, and never 0 again: it is where somebody's data goes.
//
// A lock is one of everything between its first and its last byte, for itself whichever thread
// holds it: right, only coarser. It is the file's POSIX lock as well, so that it waits for others
// who lock the file in such a way.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "mpiio/shared_state.h"
#include "store/store.h"

namespace forebay::mpiio {

class AttrState final : public SharedState {
 public:
  // A request about the file, with a right to it.
  using Prepare = std::function<Request(Op)>;

  // The store must outlive it.
  AttrState(Store& store, Prepare prepare, uint64_t cookie)
      : store_(store), prepare_(std::move(prepare)), cookie_(cookie) {}

  static uint64_t make_cookie();

  Result<uint64_t> get(Slot slot) override;
  Result<void> set(Slot slot, uint64_t value) override;
  Result<uint64_t> fetch_and_add(Slot slot, uint64_t step) override;
  Result<uint64_t> compare_and_swap(Slot slot, uint64_t expected, uint64_t desired) override;

  // Bit n: this rank has seen that slot n is there.
  uint64_t seen() const { return seen_.load(); }
  // Removes these from the server, as far as they are there.
  void remove(uint64_t slots);

 private:
  Result<uint64_t> acquire(const Extents& ranges, LockMode mode) override;
  void unlock(uint64_t ticket) override;

  struct Change {
    Op op;
    uint64_t value = 0, expected = 0;
  };
  Request request(Op op, Slot slot) const;
  Result<uint64_t> ask(Slot slot, const Change& change);
  Result<uint64_t> create_and_ask(Slot slot, const Change& change);
  uint64_t take_owner();
  void give_owner(uint64_t owner);

  Store& store_;
  const Prepare prepare_;
  const uint64_t cookie_;
  std::atomic<uint64_t> seen_{0};
  std::mutex mutex_;
  std::vector<bool> owners_;  // of locks: which are in use; few, because servers remember them
};

}  // namespace forebay::mpiio
