// LockLedger: the advisory locks that a server has granted to this client, so that they can be
// reclaimed from its next life.
//
// What is to be reclaimed is a claim until that is answered, with what was answered when it was
// granted (core/op.h): a server that ends before that does not make the claim younger.
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

  // A lock that was granted, or reclaimed.
  void granted(const Request& request, const CallerRef& caller, const Reply& reply);
  void unlocked(const Request& request);

  // A new life: what was held is a claim from now on. Requests for all claims.
  std::vector<Request> reclaims();
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
  struct Part {  // what was answered alike
    uint64_t life = 0, owner = 0;
    ExtentSet shared, exclusive;
    bool empty() const { return shared.empty() && exclusive.empty(); }
    void take_out(const ExtentSet& range);
  };
  struct Held {
    CallerRef caller;
    Right right;
    Part now;
    std::vector<Part> claims;
    bool lost = false;
    bool empty() const { return now.empty() && claims.empty(); }
    void take_out(const ExtentSet& range);
  };
  static Key key_of(const Request& request);
  static void add_requests(const Key& key, const Held& held, const Part& claim,
                           std::vector<Request>& to);

  std::map<Key, Held> files_;
};

}  // namespace forebay
