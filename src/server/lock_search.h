// LockSearch: is a lock that waits here one of a circle of locks that wait for each other at
// several homes, and the one to be refused? (attr/lock_circles.h says how that is found out.)
//
// Each home asks about the locks that wait at it, some time after they came and again from time to
// time (lock_flight.h): it asks all servers who is in the way of those who were found so far, until
// nobody new is found. Of a circle the home of the last comer refuses that; a search that finds
// another's says so to its home, which then searches itself. A server that does not answer within a
// moment is left out, and so the circles through it: the next search will find them.
//
// On one loop. Owns itself while it waits for answers.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "attr/lock_circles.h"
#include "server/export.h"

namespace forebay::server {

// What servers ask each other, as the `value` of Op::lock_waits. `data` has owners for the first
// (who is in the way of them: of all but the first of them, behind which in order the answer is to
// begin), otherwise WaitsFors.
enum class LockQuestion : uint64_t { in_the_way, stand, look };
inline constexpr size_t kMostEdges = kMaxXattr / attr::kEdgeBytes;  // of an answer

class LockSearch : public std::enable_shared_from_this<LockSearch> {
 public:
  using Done = Callback<void(bool refuse)>;
  // Calls `done` later, or at once, unless it is stopped before. Too many at a time: says no.
  static std::shared_ptr<LockSearch> make(Export& exported, Loop& loop, LockTable::Ticket ticket,
                                          Done done);
  void start();
  void stop();

 private:
  LockSearch(Export& exported, Loop& loop, LockTable::Ticket ticket, Done done);

  uint64_t own_place() const { return exported_.relay->self() + 1; }
  void open_round();
  void next();
  void ask(uint64_t place, std::vector<attr::LockOwner> owners);
  void ask_here(const std::vector<attr::LockOwner>& owners);
  void heard(uint64_t place, std::vector<attr::LockOwner> owners, const Result<Reply>& reply);
  void check(const std::vector<attr::WaitsFor>& circle);
  void send(uint64_t place, LockQuestion question, std::string data,
            Callback<void(const Result<Reply>&)> answered);
  void end(bool refuse);

  Export& exported_;  // until it has ended
  Loop& loop_;
  const LockTable::Ticket ticket_;
  Done done_;
  std::optional<attr::CircleSearch> search_;
  bool checking_ = false, stands_ = true;
  uint64_t round_ = 0;  // answers to an earlier one are not wanted any more
  size_t left_ = 0;     // answers of this one
  std::stop_source stop_;
  Loop::TimerId timer_ = 0;
};

}  // namespace forebay::server
