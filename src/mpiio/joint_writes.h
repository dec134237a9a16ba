// JointWrites: scattered writes that ranks of one node make into one file at the same time, done
// together. The calls are independent, so nobody has to come: who writes says so, waits a moment
// for those who write beside it, and all that are there and whose bytes lie among each other's are
// a team. What they name together has few holes or none, so it goes to the Store in large pieces,
// where each rank's own pieces would be small, and each page of the file would be touched by each.
//
// A team goes through its part of the file in windows. Each member copies its bytes of a window
// into a buffer that all map, and whoever comes last writes what the members have named in it
// (plan/coverage.h) and nothing else: bytes that nobody names are not touched. Nobody leaves before
// its bytes are in the file. If the Store fails for one window, each member does its own write
// alone, which says what went wrong and how far it came.
//
// So a member waits for members that are inside the same call and need nothing from outside, MPI
// neither. A rank that dies inside keeps the others waiting: its job ends with it, as MPI jobs do.
//
// Shared: plain bytes without pointers, all 0 at first. One object for each rank; any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "core/result.h"
#include "mpiio/signal_word.h"
#include "plan/view_part.h"

namespace forebay::mpiio {

class JointWrites {
 public:
  static constexpr int kMostRanks = 64;
  static uint64_t space(int ranks);
  JointWrites(std::byte* space, int rank, int ranks);

  // As a Store: writes bytes at absolute addresses to the file.
  using Write = std::function<Result<uint64_t>(Extents file, Extents memory)>;
  // Wait for others as long as that is likely to pay, and do together what then pays; or some
  // milliseconds every time, for anybody.
  enum class Patience : bool { sensible, much };
  // `memory`: from its beginning, as many bytes. False: the caller has to write them by itself.
  bool write(const plan::ViewPart& part, const plan::TiledMap& memory, const Write& by,
             Patience patience = Patience::sensible);
  // For another file. What one learned of who comes need not be true of the next: its first write
  // waits, and if that is in vain again, as many go alone as before.
  void renew();
  // How many of this rank's writes were done together with others.
  uint64_t joined() const { return joined_; }

 private:
  static constexpr uint64_t kWindow = 1_MiB;
  static constexpr uint64_t kBuffers = 4;
  static constexpr size_t kMostNumbers = 2000;  // to describe a part

  enum class Verdict : uint32_t { none, alone, member };
  struct Slot {  // of a rank
    std::atomic<Verdict> verdict;
    uint64_t begin, end;  // the smallest range of the file that holds its bytes
    uint64_t bytes;
    Patience patience;
    uint64_t count;  // of the numbers
    int64_t numbers[kMostNumbers];
  };
  struct Buffer {
    SignalWord written;            // windows of this team that have gone through it
    std::atomic<uint32_t> copied;  // members that are done with the one that is in it
  };
  struct Head {
    std::atomic<uint64_t> waiting;  // ranks that no verdict was given to
    std::atomic<uint32_t> busy;     // a team is at work, or chosen
    SignalWord events;
    std::atomic<uint32_t> company;  // how many are likely to come; 0: not known
    // Of the team. What its members have described must stay until all have left, also if some
    // leave before others.
    std::atomic<uint64_t> members;
    uint64_t begin, end;
    std::atomic<uint32_t> inside, failed;
    Buffer buffers[kBuffers];
  };
  struct Range {
    uint64_t begin, end;
  };
  struct Group;
  // What this rank writes.
  struct Own {
    const plan::ViewPart& part;
    const plan::TiledMap& memory;
    const Write& by;
  };

  bool describe(const plan::ViewPart& part, Patience patience);
  void wait_for_last_team();
  bool alone();
  void wait_for_company(uint64_t bytes, Patience patience);
  void choose_team();
  void begin_work(const Group& team);
  bool take_part(const Own& own);
  void visit(uint64_t window, const Own& own);
  void map_pages(uint64_t window);
  void copy(Range range, std::byte* buffer, const Own& own);
  void store(Range range, std::byte* buffer, const Write& by);
  std::vector<plan::ViewPart> parts_of_team() const;
  Range range_of(uint64_t window) const;
  uint32_t visitors(Range range) const;
  Slot& slot(int rank) const { return slots_[rank]; }
  std::byte* buffer(uint64_t window) const { return buffers_ + window % kBuffers * kWindow; }

  Head* const head_;
  Slot* const slots_;
  std::byte* const buffers_;
  const int rank_, ranks_;
  std::mutex mutex_;                   // one call at a time
  std::vector<plan::ViewPart> parts_;  // of the team, when this rank has to know them
  unsigned in_vain_ = 0, skipped_ = 0;
  std::atomic<uint64_t> joined_{0};
  uint64_t mapped_ = 0;  // buffers, by bits
};

}  // namespace forebay::mpiio
