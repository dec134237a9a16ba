// ListPull: the extent list of a request that is too long to travel in its message, while it is
// being pulled from the client (docs/wire-format.md, "Long lists").
//
// The list lands straight in the vector that becomes the request's Extents, whose memory is charged
// against the export's pool for as long as the charge is held.
//
// Threads: those of its flight: one loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/extents.h"
#include "core/memory.h"

namespace forebay::server {

class ListPull {
 public:
  // What the request said about its list.
  struct Announced {
    uint64_t blocks = 0;
    Extent bounds;
    std::vector<Stride> loops;
    Length total;
  };

  explicit ListPull(Announced announced) : announced_(std::move(announced)) {}

  uint64_t bytes() const;            // of the list
  Result<Extents> reserved() const;  // everything that the list may touch
  void allocate();                   // when bytes() have been charged
  bool complete() const { return landed_ == bytes(); }

  // One piece at a time: the next to ask for, where it lands, and that it has.
  struct Piece {
    uint64_t position = 0;
    uint32_t length = 0;
  };
  Piece next(uint64_t most) const;
  Memory landing(const Piece& piece);
  void landed(const Piece& piece) { landed_ += piece.length; }

  // The Extents, once complete; EINVAL if they are not what was announced.
  Result<Extents> take();

 private:
  Announced announced_;
  std::vector<Extent> blocks_;
  uint64_t landed_ = 0;
};

}  // namespace forebay::server
