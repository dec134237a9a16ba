// FileLocks: advisory locks on files, as POSIX and flock(2) have them, asked for by many clients.
//
// Two kinds, which do not see each other: `range` is fcntl's, on ranges of bytes, of which an owner
// has at most one mode at each byte (a new lock replaces, splits and joins the owner's own);
// `whole` is flock's, on the whole file. Two locks conflict if they share a byte, have different
// owners and are not both shared.
//
// What is waited for is granted in the order of arrival, as soon as nothing that conflicts with it
// is held. An owner that holds nothing at all also waits behind earlier ones who wait, so that a
// stream of readers does not starve a writer. (If it held something, others might be waiting for
// that, and waiting behind one who cannot go on would be a deadlock that need not be.)
//
// A range lock that would close a circle of owners waiting for each other, over any number of
// files, is refused (EDEADLK). Where owners have locks in other places too, circles through those
// are for somebody else to find (lock_circles.h): in_the_way() is for that. A whole
// lock is given up before a waiting one in another mode replaces it, as flock does, so that two who
// hold it shared can both ask for more.
//
// A value: no threads, no clock, no network. (Locks of paper 5, chapter 5, are of the cache and
// passive; these are the application's own.)
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/extent_set.h"
#include "core/result.h"
#include "plan/interval_tree.h"

namespace forebay::attr {

class FileLocks {
 public:
  // Who within which client: a process, or an open file.
  struct Owner {
    uint64_t client = 0, name = 0;
    auto operator<=>(const Owner&) const = default;
  };
  enum class Kind : uint8_t { range, whole };
  struct Lock {
    Kind kind = Kind::range;
    bool exclusive = false;
    Extent range;  // never empty
  };
  struct Held {
    Owner owner;
    Lock lock;
  };
  using Ticket = uint64_t;  // of one that waits
  struct Outcome {
    enum class State : uint8_t { granted, waits, refused } state = State::granted;
    Ticket ticket = 0;            // if it waits
    std::vector<Ticket> granted;  // to others, by the same step
  };
  struct Limits {
    size_t in_all = 1 << 20;  // held and waited for
    size_t per_client = 1 << 16;
  };

  FileLocks() : FileLocks(Limits()) {}
  explicit FileLocks(Limits limits) : limits_(limits) {}

  // Refused if it conflicts and does not wait. EDEADLK, ENOLCK. `elsewhere`: the owner holds locks
  // that are kept in another place.
  Result<Outcome> lock(std::string_view file, Owner owner, const Lock& lock, bool wait,
                       bool elsewhere = false);
  // Frees what the owner holds there; never fails. Returns what that grants.
  std::vector<Ticket> unlock(std::string_view file, Owner owner, Kind kind, Extent range);
  // What `from` holds, all of it and in no lesser mode, is `to`'s from now on; nothing: it does
  // not. Returns what that grants to others.
  std::optional<std::vector<Ticket>> inherit(std::string_view file, Owner from, Owner to,
                                             const Lock& lock);
  // No longer waits; returns what that grants to others. Nothing if it was granted.
  std::vector<Ticket> give_up(Ticket ticket);
  bool knows(uint64_t client) const { return clients_.contains(client); }  // it holds, or waits
  // Frees all that a client's owners hold and wait for.
  std::vector<Ticket> forget(uint64_t client);

  // The lowest lock that is in the way of this one.
  std::optional<Held> test(std::string_view file, Owner owner, const Lock& lock) const;

  // A range lock that waits, and one in its way: held, or one that it waits behind. If either
  // changes in any way, it is none of these numbers any more.
  using Id = plan::IntervalTree::Id;
  struct InTheWay {
    Ticket ticket = 0;
    Id held = 0;
    Owner waiter, holder;
  };
  void in_the_way(Ticket ticket, const std::function<void(const InTheWay&)>& tell) const;
  void in_the_way(Owner waiter, const std::function<void(const InTheWay&)>& tell) const;
  bool holds(Owner owner) const;  // any lock at all

  size_t held() const { return pieces_.size(); }
  size_t waiting() const { return waits_.size(); }

 private:
  struct Book {  // the locks of one kind on one file
    std::string file;
    Kind kind;
    plan::IntervalTree held, waiting;  // by Id of pieces_, by Ticket
    bool empty() const { return held.empty() && waiting.empty(); }
  };
  struct Piece {
    Owner owner;
    Lock lock;
    Book* book;
  };
  struct Wait {
    Owner owner;
    Lock lock;
    Book* book;
    bool behind;  // others who waited before
  };
  struct OwnerState {
    std::map<Book*, std::map<Offset, Id>> pieces;  // by where they begin
    std::set<Ticket> waits;
    bool holds() const { return !pieces.empty(); }
  };

  Book& book_of(std::string_view file, Kind kind);
  Book* find_book(std::string_view file, Kind kind) const;
  void drop_if_empty(Book& book);
  void drop_if_empty(Owner owner);

  template <class Fn>
  bool each_blocker(const Book& book, const Wait& wait, Ticket before, Fn&& fn) const;
  bool blocked(const Book& book, const Wait& wait, Ticket before) const;
  bool would_deadlock(const Book& book, const Wait& wait) const;
  Result<void> within_limits(Owner owner) const;

  bool add(Book& book, Owner owner, Lock lock);
  enum class Had { nothing, shared, exclusive };
  Had cut(Book& book, Owner owner, Extent range);
  void insert(Book& book, OwnerState& state, Owner owner, Lock lock);
  void erase(OwnerState& state, Id id);
  void erase(Ticket ticket);
  void freed(Book& book, const ExtentSet& ranges, std::vector<Ticket>& granted);

  Limits limits_;
  std::map<std::pair<std::string, Kind>, std::unique_ptr<Book>, std::less<>> books_;
  std::unordered_map<Id, Piece> pieces_;
  std::map<Ticket, Wait> waits_;
  std::map<Owner, OwnerState> owners_;
  std::map<uint64_t, size_t> clients_;  // how many locks, held and waited for
  Id last_ = 0;
};

}  // namespace forebay::attr
