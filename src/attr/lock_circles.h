// LockCircles: circles of lock owners who wait for each other, over the homes of several servers.
//
// The circles among the files of one home FileLocks finds itself. A lock that waits for longer than
// a moment is looked at like this: who is in its way, wherever they hold it (WaitsFor); do they
// wait themselves, anywhere; and who is in the way there; until its own owner is found, or nobody
// is left (CircleSearch). What is heard from several servers at several times need never have been
// true at once. So each WaitsFor names a thing that is never made again, this lock that waits and
// that one that is held, and when a circle is found its servers are asked again: what stands then
// stood all the time, and so all of it stood together at the moment between the first questions and
// the second. (A probe that is sent along the edges, as in K. M. Chandy, J. Misra and L. M. Haas,
// "Distributed Deadlock Detection", ACM TOCS 1983, would meet the same owners, but has to be right
// also when servers are restarted and connections lost on its way.)
//
// Of a circle only the last comer is refused: all that find it choose the same.
//
// Those who merely wait before one are part of it too: who held nothing when it asked waits behind
// them (file_locks.h), and may have got a lock elsewhere since, by another thread.
//
// Pure: no network, no clock.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::attr {

// An owner of locks, as all servers know it.
struct LockOwner {
  uint64_t place = 0;  // 0: `name` is its name at every server. Otherwise it has locks at one
                       // server only, this one of the list, counted from 1,
  uint64_t client = 0, name = 0;  // and is known there as this
  auto operator<=>(const LockOwner&) const = default;
};

// A lock that waits, and one that is held and in its way.
struct WaitsFor {
  LockOwner waiter, holder;
  uint64_t place = 0;  // of the server where they are
  uint64_t life = 0;   // of that server
  uint64_t ticket = 0, held = 0;
  uint64_t since = 0;  // by that server's clock
  bool operator==(const WaitsFor&) const = default;
};

class CircleSearch {
 public:
  static constexpr size_t kMost = 65536;  // owners that it looks at

  // What one lock waits for.
  explicit CircleSearch(const std::vector<WaitsFor>& first);

  // Those of whom is to be asked whom they wait for; none: there is no circle.
  std::vector<LockOwner> take_questions();
  void add(const WaitsFor& edge);
  // Once it is found, from the lock in question on: the holder of each is the waiter of the next.
  std::optional<std::vector<WaitsFor>> circle() const;

 private:
  LockOwner start_;
  std::map<LockOwner, WaitsFor> reached_;  // and by what
  std::vector<LockOwner> questions_;
  std::optional<WaitsFor> closes_;
};

// Who is to be refused.
const WaitsFor& last_comer(const std::vector<WaitsFor>& circle);

// As bytes, between servers. Nothing: they are none.
std::string pack(const std::vector<LockOwner>& owners);
std::string pack(const std::vector<WaitsFor>& edges);
std::optional<std::vector<LockOwner>> unpack_owners(std::string_view bytes);
std::optional<std::vector<WaitsFor>> unpack_edges(std::string_view bytes);
inline constexpr size_t kOwnerBytes = 24, kEdgeBytes = 2 * kOwnerBytes + 40;

}  // namespace forebay::attr
