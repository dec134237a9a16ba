// Moving a whole file between a descriptor and a Store, several requests under way at a time.
//
// The calling thread reads and writes the descriptor; requests complete on whatever thread the
// Store uses. Data goes to and comes from the descriptor in order, so pipes do as well as files.
#pragma once

#include <cstdint>
#include <functional>

#include "core/op.h"
#include "core/result.h"
#include "store/store.h"

namespace forebay {

// An open file of a Store.
struct OpenFile {
  Handle handle;
  Right right;
};

// What a transfer asks and tells while it runs, a few times a second and after each piece.
struct Watch {
  std::function<void(uint64_t bytes)> moved = [](uint64_t) {};
  std::function<bool()> give_up = [] { return false; };  // then it fails with EINTR
};

// To the end of `from`; returns the bytes.
Result<uint64_t> write_file(Store& store, const CallerRef& caller, const OpenFile& file, int from,
                            const Watch& watch);
// The first `size` bytes; fewer (somebody cut the file meanwhile) is EIO.
Result<void> read_file(Store& store, const CallerRef& caller, const OpenFile& file, uint64_t size,
                       int to, const Watch& watch);

}  // namespace forebay
