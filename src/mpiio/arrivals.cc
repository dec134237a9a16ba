#include "mpiio/arrivals.h"

#include <utility>
#include <vector>

namespace forebay::mpiio {

void Arrivals::add(uint64_t number, uint32_t code, Told told) {
  std::lock_guard lock(mutex_);
  const bool added = pending_.try_emplace(number, One{code, std::move(told)}).second;
  FOREBAY_ASSERT(added, "a rank arrives once");
}

bool Arrivals::try_all(const std::function<Result<Outcomes>()>& outcomes_of) {
  // Those who are told may hold the last reference to us, so that is after the lock is gone.
  std::vector<std::pair<Told, Result<void>>> told;
  bool none = true;
  {
    std::lock_guard lock(mutex_);
    if (pending_.empty()) return true;
    auto outcomes = outcomes_of();
    for (auto it = pending_.begin(); it != pending_.end(); it = pending_.erase(it)) {
      auto arrived = outcomes ? outcomes->try_arrive(it->first, it->second.code)
                              : Result<std::optional<uint32_t>>(outcomes.error());
      if (arrived && !*arrived) break;
      if (arrived && **arrived != 0) failed_.emplace(it->first - Outcomes::kAhead, **arrived);
      told.emplace_back(std::move(it->second.told),
                        arrived ? Result<void>() : Result<void>(arrived.error()));
    }
    none = pending_.empty();
  }
  for (auto& [tell, result] : told) tell(std::move(result));
  return none;
}

Result<std::optional<uint32_t>> Arrivals::worst(Outcomes& outcomes, uint64_t number) {
  auto found = outcomes.worst(number);
  if (!found || !*found || **found != 0) return found;
  std::lock_guard lock(mutex_);  // after the look: what is lost by then was learned before
  const auto known = failed_.find(number);
  return known == failed_.end() ? found : std::optional(known->second);
}

}  // namespace forebay::mpiio
