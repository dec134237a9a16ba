// ArbiterClient: the SharedState of ranks on several nodes: a connection to the Arbiter (arbiter.h)
// of rank 0. Rank 0 is a client of its own arbiter like everybody else.
//
// Every call is one round trip, except unlocking, which is not waited for. Threads share the
// connection: one of those that wait reads for all. An arbiter that is gone, or closes the
// connection, fails every call under way and after with ECONNRESET; one whose machine or network
// died is noticed within half a minute. There is no second connection: a value might be added
// twice.
//
// A lock of more than kMaxBlocks blocks or kMaxLoops loops (arbiter_wire.h) is one of everything
// between its first and its last byte: right, only coarser.
#pragma once

#include <memory>

#include "core/clock.h"
#include "mpiio/invitation.h"
#include "mpiio/shared_state.h"

namespace forebay::mpiio {

class ArbiterClient final : public SharedState {
 public:
  // Tries the invitation's addresses until one is the arbiter's, at most for so long. EACCES: what
  // listens there does not know the key. ENOENT: it does not have that file any more.
  static Result<std::unique_ptr<ArbiterClient>> connect(const Invitation& invitation,
                                                        Duration within = std::chrono::seconds(20));
  ~ArbiterClient() override;  // with no call under way; frees all that it holds

  Result<uint64_t> get(Slot slot) override;
  Result<void> set(Slot slot, uint64_t value) override;
  Result<uint64_t> fetch_and_add(Slot slot, uint64_t step) override;
  Result<uint64_t> compare_and_swap(Slot slot, uint64_t expected, uint64_t desired) override;

 private:
  struct Impl;
  explicit ArbiterClient(std::unique_ptr<Impl> impl);
  Result<uint64_t> acquire(const Extents& ranges, LockMode mode) override;
  void unlock(uint64_t ticket) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::mpiio
