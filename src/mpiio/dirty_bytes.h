// DirtyBytes: which bytes of a page were written and are not in the Store yet, exactly. One run
// where that is enough, which is the rule, and otherwise a bit for each byte. The bits lie apart
// from the page's other numbers, so that memory for them is touched only where they are needed.
//
// Invariants: one run is never `scattered`; all bits are 0 unless `scattered`; the bounds are
// exact. All zeros is the empty set.
#pragma once

#include <bit>
#include <cstdint>

#include "core/assert.h"

namespace forebay::mpiio {

struct DirtyBounds {
  uint32_t low = 0, high = 0;
  uint32_t bits = 0;  // that are set
  bool scattered = false;
  bool any() const { return low < high; }
};

class DirtyBytes {
 public:
  // `words`: a bit for each byte of the page, whose size is a multiple of 64.
  DirtyBytes(DirtyBounds& bounds, uint64_t* words) : bounds_(bounds), words_(words) {}

  // Of the bytes [from, to), from < to.
  void add(uint32_t from, uint32_t to);
  void remove(uint32_t from, uint32_t to);
  bool covers(uint32_t from, uint32_t to) const;
  void clear();

  // fn(from, to) for every run, rising, none touching the next.
  template <class Fn>
  void each_run(Fn&& fn) const {
    for (uint32_t from = bounds_.low; from < bounds_.high;) {
      const uint32_t to = run_end(from);
      fn(from, to);
      from = to < bounds_.high ? next_set(to) : to;
    }
  }

 private:
  void scatter();
  void gather();  // one run if it is one
  void assign(uint32_t from, uint32_t to, bool value);
  uint32_t run_end(uint32_t from) const;  // of a run that `from` lies in
  // There must be one within the bounds.
  uint32_t next_set(uint32_t from) const;
  uint32_t end_of_set(uint32_t to) const;  // the end of the last one before `to`

  DirtyBounds& bounds_;
  uint64_t* const words_;
};

}  // namespace forebay::mpiio
