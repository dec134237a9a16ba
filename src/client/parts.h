// Parts: a read or write whose extent list is longer than the server takes, cut along its stream
// into requests that are done one after another, and their counts added up.
//
// A request that was cut is not atomic: another client's request may come between two of its parts.
// Those of the same client do not: the session sends nothing else until the last part is done.
//
// Pure but for the request that it holds: no I/O.
#pragma once

#include "core/extents.h"
#include "core/memory.h"
#include "core/result.h"

namespace forebay {

class Parts {
 public:
  // `most` is how many blocks one part's list may have, at least 1.
  Parts(Extents file, Memory memory, uint64_t most)
      : file_(std::move(file)), memory_(std::move(memory)), most_(most) {}

  // The part that begins where the last one ended; the same again until advance().
  struct Part {
    Extents file;
    Memory memory;
  };
  Part next() const;

  // The part is done, `count` bytes of it. True if that was all: the last part, or a short one.
  bool advance(uint64_t count);
  uint64_t done() const { return done_; }

  // A part was still too long for the server: cut smaller from here on. False if it cannot be.
  bool shrink();
  void limit(uint64_t most) { most_ = std::min(most_, most); }

 private:
  Length next_length() const;

  Extents file_;
  Memory memory_;
  uint64_t most_;
  uint64_t done_ = 0;
};

}  // namespace forebay
