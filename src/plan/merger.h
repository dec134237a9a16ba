// Merger: the pending requests of one handle, and which of them go out together (paper 1, section
// III.B.2: brute force and interval tree).
//
// Unlike the paper's, a request is merged when it is issued, not when it arrives: what is taken is
// a run, in rising order of offsets, of requests each of which touches (continues or overlaps)
// those before it; so a late neighbour joins whatever has not been issued, and a request that
// arrives costs no search for partners. Both mergers take the same runs; they differ in cost only.
//
// Pure values: no threads, no clock, no I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/types.h"

namespace forebay::plan {

// One pending request, as a merger sees it.
struct Item {
  Offset offset, end;   // its bounds in the file; not empty
  uint64_t bytes = 0;   // moved; fewer than the bounds for a list with holes
  uint32_t slot = 0;    // the caller's name for it, unique among those pending
  uint32_t pieces = 1;  // of its file side; 0: never merged with others

  bool before(const Item& o) const {
    return offset != o.offset ? offset < o.offset : slot < o.slot;
  }
};

// What one run may hold. A request that is larger alone goes alone.
struct RunLimits {
  uint64_t bytes = 1_MiB;
  uint64_t pieces = 1024;
  uint64_t requests = 1024;
};

// Grows a run by one request after the other; the rule that both mergers share.
class Run {
 public:
  explicit Run(const RunLimits& limits) : limits_(limits) {}
  // Takes it in if it is the first, or touches the run and there is room.
  bool take(const Item& item);
  Offset begin() const { return begin_; }
  Offset end() const { return end_; }  // of what was taken so far
  bool open() const { return open_; }  // could it grow at all?

 private:
  RunLimits limits_;
  Offset begin_, end_;
  uint64_t bytes_ = 0, pieces_ = 0, requests_ = 0;
  bool open_ = true;
};

class Merger {
 public:
  enum class Kind : uint8_t { tree, brute };
  static std::unique_ptr<Merger> make(Kind kind);
  virtual ~Merger() = default;

  virtual void insert(const Item& item) = 0;
  virtual size_t size() const = 0;
  bool empty() const { return size() == 0; }

  // Takes out the run around the lowest request at or after `from`, or around the lowest of all if
  // there is none. Must not be empty. `out` is emptied first.
  virtual void take(Offset from, const RunLimits& limits, std::vector<Item>& out) = 0;
  // Takes out the run around one request, which must be pending: it begins with the neighbours
  // below that lead up to it, as far as half of the limits, and goes on above it.
  struct Which {
    Offset offset;
    uint32_t slot;
  };
  virtual void take_around(Which which, const RunLimits& limits, std::vector<Item>& out) = 0;
};

}  // namespace forebay::plan
