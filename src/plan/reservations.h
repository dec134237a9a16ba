// Reservations: which requests on one file may run now. The rule "Order" of the design as a value:
// a request's extents are reserved all at once, in arrival order; overlapping requests wait for
// each other unless both are reads, so no request is torn by another. Nor is it where a file is
// held in common (server/shortcuts.h) by those who write to it by calls that the file system does
// as a whole: they do not wait for each other, nor for writes that are done so here.
//
// Pure: no threads, no clock, no I/O. One object per file; the server keeps them under its lock.
//
// Invariants:
//  1. A request runs as soon as no earlier request that conflicts with it is still held (waiting or
//     running). Requests that do not conflict overtake those that wait. So a stream of reads cannot
//     starve a write: those that came after it and overlap it wait for it.
//  2. Adding costs O(log n + neighbours) with n held, and so does releasing for each request that
//     waited for the released one above all: overlap of bounds is found by an interval tree, and
//     only then compared exactly (may_overlap, whose caution with very long views counts as a
//     conflict). Memory is O(n).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/extents.h"

namespace forebay::plan {

class Reservations {
 public:
  Reservations();
  ~Reservations();
  Reservations(Reservations&&) noexcept;
  Reservations& operator=(Reservations&&) noexcept;

  using Id = uint64_t;  // chosen by the caller, unique among those held
  enum class Mode : uint8_t {
    read,
    write,
    whole,   // a write that the file system does as a whole
    common,  // of one who writes, of all that it has reserved, only as a whole
  };
  static constexpr size_t kModes = 4;
  // Do they wait for each other where they overlap?
  static constexpr bool conflict(Mode a, Mode b) {
    if (a == Mode::common || b == Mode::common) {
      const Mode other = a == Mode::common ? b : a;
      return other == Mode::read || other == Mode::write;
    }
    return a != Mode::read || b != Mode::read;
  }

  // Holds the extents; true if the request may run at once.
  bool add(Id id, Mode mode, Extents extents);
  // Lets go, running or waiting; returns those that may run now, in arrival order.
  std::vector<Id> release(Id id);

  bool running(Id id) const;
  size_t size() const;  // held
  bool empty() const { return size() == 0; }
  // Nodes of interval trees looked at so far: the cost of all calls, for tests and counters.
  uint64_t nodes_visited() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::plan
