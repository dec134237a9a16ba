// RangeLocks: who may touch which bytes of one file, asked for by many clients.
//
// The rule is that of plan::Reservations, which this gives owners, limits and errors: a lock covers
// any number of ranges, which it gets all at once; two conflict if they share a byte and are not
// both shared; a lock is granted as soon as no earlier one that conflicts with it is held or waited
// for.
//
// What follows from the rule:
//  1. Nobody starves: later requests never overtake an earlier one that they conflict with.
//  2. No deadlock among owners that ask for nothing while they hold something. (A lock waits for
//     every earlier conflicting one, whoever owns that: one owner's locks are no exception.)
//  3. A request costs O(log n + neighbours) with n locks held, not O(n).
//
// A value: no threads, no clock, no network. Each step returns which locks were granted by it, and
// whoever drives it tells their owners.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/extents.h"
#include "core/result.h"
#include "plan/reservations.h"

namespace forebay::attr {

enum class LockMode : uint8_t { shared, exclusive };

class RangeLocks {
 public:
  using Owner = uint64_t;
  // One lock, held or waited for. The id is the owner's choice, unique among its own.
  struct Ticket {
    Owner owner = 0;
    uint64_t id = 0;
    auto operator<=>(const Ticket&) const = default;
  };
  struct Limits {
    size_t in_all = 1 << 20;  // held and waited for
    size_t per_owner = 4096;
  };

  RangeLocks() : RangeLocks(Limits()) {}
  explicit RangeLocks(Limits limits) : limits_(limits) {}

  // True: granted. False: it waits, and a later step names it. ENOLCK beyond the limits, EEXIST if
  // the owner has a lock of that id. No bytes at all are granted at once, and held until unlocked.
  Result<bool> lock(Ticket ticket, LockMode mode, Extents ranges);
  // Gives back what is held, or gives up waiting; returns the locks granted by that. ENOENT if
  // there is no such ticket.
  Result<std::vector<Ticket>> unlock(Ticket ticket);
  // Frees all that an owner holds and waits for; returns what that grants to others.
  std::vector<Ticket> forget(Owner owner);

  bool held(Ticket ticket) const;  // granted, that is
  size_t size() const { return tickets_.size(); }
  uint64_t nodes_visited() const { return reservations_.nodes_visited(); }  // cost, for tests

 private:
  using Id = plan::Reservations::Id;

  void release(Id id, std::vector<Ticket>& granted);

  Limits limits_;
  plan::Reservations reservations_;
  std::unordered_map<Id, Ticket> tickets_;
  std::unordered_map<Owner, std::map<uint64_t, Id>> owners_;  // by the owner's id
  Id last_ = 0;
};

}  // namespace forebay::attr
