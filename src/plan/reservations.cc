#include "plan/reservations.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "plan/interval_tree.h"

namespace forebay::plan {

// Everything inside goes by arrival number; ids are the caller's. A request that waits watches one
// blocker only, the latest: requests of a hot range then form a chain, where each is looked at
// again once, and memory grows with the requests held, not with the pairs that conflict.
struct Reservations::Impl {
  using Arrival = uint64_t;  // from 1

  struct Held {
    Id id;
    Mode mode;
    Extents extents;
    Arrival blocker = 0;           // 0: running
    std::set<Arrival> watchers{};  // those whose blocker this is
  };

  IntervalTree& tree(Mode mode) { return trees[static_cast<size_t>(mode)]; }

  // The latest of the requests before `arrival` that conflicts with it, or 0.
  Arrival latest_blocker(Arrival arrival, const Held& held) {
    std::vector<Arrival> earlier;
    const auto note = [&](Extent, uint64_t other) {
      if (other < arrival) earlier.push_back(other);
    };
    for (size_t i = 0; i < kModes; ++i) {
      if (!conflict(static_cast<Mode>(i), held.mode)) continue;
      visited += trees[i].visit(held.extents.bounds(), note);
    }
    std::make_heap(earlier.begin(), earlier.end());
    while (!earlier.empty()) {
      const Arrival latest = earlier.front();
      if (may_overlap(all.at(latest).extents, held.extents)) return latest;
      std::pop_heap(earlier.begin(), earlier.end());
      earlier.pop_back();
    }
    return 0;
  }

  // Finds what it must wait for; true if that is nothing.
  bool settle(Arrival arrival) {
    Held& held = all.at(arrival);
    held.blocker = latest_blocker(arrival, held);
    if (held.blocker != 0) all.at(held.blocker).watchers.insert(arrival);
    return held.blocker == 0;
  }

  std::unordered_map<Arrival, Held> all;
  std::unordered_map<Id, Arrival> arrivals;
  std::array<IntervalTree, kModes> trees;  // by mode
  Arrival last = 0;
  uint64_t visited = 0;
};

Reservations::Reservations() : impl_(std::make_unique<Impl>()) {}
Reservations::~Reservations() = default;
Reservations::Reservations(Reservations&&) noexcept = default;
Reservations& Reservations::operator=(Reservations&&) noexcept = default;

bool Reservations::add(Id id, Mode mode, Extents extents) {
  Impl& s = *impl_;
  const Impl::Arrival arrival = ++s.last;
  const bool fresh = s.arrivals.emplace(id, arrival).second;
  FOREBAY_ASSERT(fresh, "already held: " + std::to_string(id));
  const Extent bounds = extents.bounds();
  s.all.emplace(arrival, Impl::Held{id, mode, std::move(extents)});
  if (!bounds.empty()) s.tree(mode).insert(bounds, arrival);
  return s.settle(arrival);
}

std::vector<Reservations::Id> Reservations::release(Id id) {
  Impl& s = *impl_;
  const auto found = s.arrivals.find(id);
  FOREBAY_ASSERT(found != s.arrivals.end(), "not held: " + std::to_string(id));
  const Impl::Arrival arrival = found->second;
  const Impl::Held gone = std::move(s.all.extract(arrival).mapped());
  s.arrivals.erase(found);
  const Extent bounds = gone.extents.bounds();
  if (!bounds.empty()) s.tree(gone.mode).erase(bounds, arrival);
  if (gone.blocker != 0) s.all.at(gone.blocker).watchers.erase(arrival);

  std::vector<Id> ready;
  for (const Impl::Arrival watcher : gone.watchers) {
    if (s.settle(watcher)) ready.push_back(s.all.at(watcher).id);
  }
  return ready;
}

bool Reservations::running(Id id) const {
  const auto found = impl_->arrivals.find(id);
  return found != impl_->arrivals.end() && impl_->all.at(found->second).blocker == 0;
}

size_t Reservations::size() const {
  return impl_->all.size();
}

uint64_t Reservations::nodes_visited() const {
  return impl_->visited;
}

}  // namespace forebay::plan
