// RelayedLocks: the locks that one client has on files that live at other servers, where the owners
// of all our clients are one client's: each has a number there, random, by which it is known again
// if this server is restarted and the client reclaims its locks (lock_table.h).
//
// What is held there is remembered, so that it is freed when the client's session ends, and no
// longer than that: neither the files nor the owners that a client has ever had add up. On the
// session's loop.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/extent_set.h"
#include "core/op.h"

namespace forebay::server {

class RelayedLocks {
 public:
  static constexpr size_t kMostFiles = 65536;

  // The number of the request's owner at other servers. ENOLCK if there are too many. A lock is
  // followed by ended(), whatever becomes of it.
  Result<uint64_t> owner_of(const Request& request);
  // A lock or unlock, whose cookie is the number there, is answered. Returns the client's own
  // number of the owner if that has nothing at other servers any more.
  std::optional<uint64_t> ended(const Request& request, bool done);
  // Does an owner, by the client's own number, hold any lock at other servers?
  bool holds(uint64_t owner) const;
  // What frees everything. It is forgotten.
  std::vector<Request> take_unlocks();

  size_t files() const { return files_.size(); }
  size_t owners() const { return owners_.size(); }

 private:
  struct Owner {
    uint64_t there = 0;
    size_t files = 0;  // on which it has locks, or asks for them
    size_t held = 0;   // on which it has locks
  };
  struct File {
    CallerRef caller;
    uint64_t cookie = 0;
    size_t asked = 0;        // locks that are not answered
    ExtentSet range, whole;  // held
    bool holds() const { return !range.empty() || !whole.empty(); }
  };

  std::unordered_map<uint64_t, Owner> owners_;              // by the client's own number
  std::map<std::pair<std::string, uint64_t>, File> files_;  // by handle and number there
};

}  // namespace forebay::server
