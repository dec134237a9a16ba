// RecordWrites: small records that ranks of one node write at a shared file pointer at the same
// time. Their places lie beside each other, and a call of the file system for one costs as much as
// three more blocks in it: so whoever finds nobody writing writes what all who are there have
// brought, in the memory that they share, and those who come meanwhile are the next one's. A call
// returns when its bytes are in the file.
//
// Nobody has to come: who is there first gives way to others a few times, not at all after it was
// alone. Where the Store fails, each of those whose records were in the call writes its own again
// by itself, which says what went wrong and how far it came. Whoever waits long takes its record
// back; if that is being written already, it waits on, because what is written late might cover
// what comes after it, unless the writer has died.
//
// Shared: plain bytes without pointers, all 0 at first. One object for each rank; any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "mpiio/node_records.h"
#include "mpiio/signal_word.h"
#include "plan/tiled_map.h"

namespace forebay::mpiio {

class RecordWrites {
 public:
  static constexpr int kMostRanks = 64;
  static constexpr uint64_t kLeastBytes = 2048;  // shorter ones are written before another rank ran
  static uint64_t space(int ranks);
  RecordWrites(std::byte* space, int rank, int ranks);

  // At most NodeRecords::kMostBytes. False: the caller has to write them by itself.
  bool write(Offset at, const plan::TiledMap& memory, const NodeRecords::Write& by);
  // For another file.
  void renew() { in_vain_ = skipped_ = 0; }

 private:
  enum class Verdict : uint32_t { none, written, alone };
  struct alignas(64) Slot {  // of a rank
    std::atomic<Verdict> verdict;
    uint32_t others;  // that were written with it
    uint64_t at, length;
  };
  struct Head {
    alignas(64) std::atomic<uint64_t> offered;  // ranks whose records nobody has taken
    alignas(64) std::atomic<int32_t> writer;    // the process whose turn it is; 0: nobody's
    SignalWord events;
  };

  void offer(Offset at, const plan::TiledMap& memory);
  void wait_for_company() const;
  void wait_for_verdict(const NodeRecords::Write& by);
  bool take_turn(const NodeRecords::Write& by);
  void write_for_all(const NodeRecords::Write& by);
  bool takes_back(unsigned sleeps);
  void note_company(bool any);
  Slot& slot(int rank) const { return slots_[rank]; }

  Head* const head_;
  Slot* const slots_;
  const NodeRecords records_;
  const int rank_;
  const int32_t process_;
  std::mutex mutex_;  // one call at a time
  unsigned in_vain_ = 0, skipped_ = 0;
};

}  // namespace forebay::mpiio
