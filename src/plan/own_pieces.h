// OwnPieces: those of a window's bytes (plan/coverage.h) that the aggregator itself has in its own
// memory, in pieces long enough that the Store moves them from or to there, rather than that they
// are copied (paper 5, section 4.2.3: "zero copies").
//
// Of a write they may be bytes that another rank writes too: MPI leaves open whose stay. Of a read
// they are not: the others would look for them in the window's buffer (nobody_shares()).
#pragma once

#include <span>
#include <vector>

#include "plan/view_part.h"

namespace forebay::plan {

class OwnPieces {
 public:
  // Measured: with buffers that stay in the processor's cache (those of local file systems) shorter
  // ones cost no less than a copy of them does.
  static constexpr uint64_t kLeastLocal = 64_KiB, kLeast = 32_KiB;

  explicit OwnPieces(uint64_t least = kLeast) : least_(least) {}

  // By rising place in the window. False: it has to be copied.
  bool take(uint64_t place, Extent memory) noexcept;
  bool has(uint64_t place) const;
  bool empty() const { return pieces_.empty(); }

  // Where the window's bytes lie: in the buffer, all but these.
  Extents memory(Extent buffer) const;

 private:
  struct Piece {
    uint64_t place;
    Extent memory;
  };
  uint64_t least_;
  std::vector<Piece> pieces_;
};

// Is each byte of the runs known to be named by one part only? Costs a look at each part, and at
// none of its pieces; "no" where there are parts' bytes between the runs.
bool nobody_shares(std::span<const ViewPart> parts, std::span<const Extent> runs);

}  // namespace forebay::plan
