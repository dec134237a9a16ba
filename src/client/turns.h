// Turns: which bytes of a file threads of this process are at, so that none writes what another one
// reads or writes.
//
// Threads: any. A turn may end on another thread than it began on.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>

#include "core/extents.h"

namespace forebay {

class Turns {
  struct At {
    Extent bytes;
    bool write;

    bool conflicts(const At& other) const {
      return (write || other.write) && other.bytes.offset < bytes.end() &&
             bytes.offset < other.bytes.end();
    }
  };
  using Place = std::list<At>::iterator;

 public:
  enum class Wait : bool { no, yes };
  class Turn {
   public:
    Turn(Turns& turns, Extent bytes, bool write, Wait wait)
        : turns_(turns), place_(turns_.begin({bytes, write}, wait, waited_)) {}
    ~Turn() {
      if (place_) turns_.end(*place_);
    }
    Turn(const Turn&) = delete;
    bool mine() const { return place_.has_value(); }
    bool waited() const { return waited_; }

   private:
    Turns& turns_;
    bool waited_ = false;
    const std::optional<Place> place_;
  };

 private:
  // Those who came before, waiting or not, go first.
  std::optional<Place> begin(At at, Wait wait, bool& waited) {
    std::unique_lock lock(mutex_);
    const Place mine = at_.insert(at_.end(), at);
    const auto free = [&] {
      return std::none_of(at_.begin(), mine, [&](const At& other) { return at.conflicts(other); });
    };
    if (wait == Wait::no && !free()) {
      at_.erase(mine);
      return std::nullopt;
    }
    while (!free()) {
      waited = true;
      ++waiting_;
      changed_.wait(lock);
      --waiting_;
    }
    return mine;
  }
  void end(Place place) {
    std::lock_guard lock(mutex_);
    at_.erase(place);
    if (waiting_ > 0) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<At> at_;  // in the order of arrival
  unsigned waiting_ = 0;
};

}  // namespace forebay
