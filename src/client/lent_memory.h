// LentMemory: memory of this process that a server on the same node reaches without a copy.
// Programs allocate from it (Store::allocate), and a request whose memory lies in it names its
// place.
//
// When a request on it has failed the server may still be at it (a back end that does not answer).
// detach() then exchanges the pages under the same addresses: the program keeps its bytes, the
// server the old pages, and the range is ordinary memory from then on. So that no other request can
// be hurt by that, reads are lent whole pages only.
//
// A forked child shares the pages with its parent, but lends memory of its own.
//
// Threads: any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "core/extent_set.h"
#include "core/memory.h"
#include "core/op.h"
#include "transport/shared_pages.h"

namespace forebay {

class LentMemory {
 public:
  static Result<std::shared_ptr<LentMemory>> create(uint64_t bytes);

  const std::shared_ptr<SharedPages>& pages() const { return pages_; }

  // Whole pages, zeroed; null if there is not enough left in one piece.
  std::byte* allocate(size_t size);
  bool release(std::byte* memory);  // false: not from here
  bool holds(const std::byte* at, uint64_t length) const;

  // Where a request's memory lies, if it can be lent.
  std::optional<uint64_t> place_of(const Request& request) const;
  void detach(const Memory& memory);

 private:
  explicit LentMemory(std::shared_ptr<SharedPages> pages);
  const std::shared_ptr<SharedPages> pages_;
  mutable std::mutex mutex_;
  ExtentSet free_, detached_;
  std::map<uint64_t, uint64_t> given_;  // by offset
};

}  // namespace forebay
