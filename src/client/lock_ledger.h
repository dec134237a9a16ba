// LockLedger: the advisory locks that a server has granted to this client, so that they can be
// reclaimed from its next life.
//
// A lock that could not be reclaimed is lost: its owner is told once, by its next lock, unlock or
// test on the file, because what the lock protected may have changed. On one loop.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/extent_set.h"
#include "core/op.h"

namespace forebay {

class LockLedger {
 public:
  bool empty() const { return files_.empty(); }

  // A lock or unlock that has succeeded.
  void done(const Request& request, const CallerRef& caller);

  // Requests that reclaim all that is held.
  std::vector<Request> reclaims() const;
  // One of them has failed.
  void lost(const Request& reclaim);
  // What is to be reported to the owner whose request this is.
  std::optional<Error> take_loss(const Request& request);

 private:
  struct Key {
    std::string handle;
    uint64_t owner;
    bool whole;
    auto operator<=>(const Key&) const = default;
  };
  struct Held {
    CallerRef caller;
    Right right;
    ExtentSet shared, exclusive;
    bool lost = false;
  };
  static Key key_of(const Request& request);

  std::map<Key, Held> files_;
};

}  // namespace forebay
