#include "core/counters.h"

#include <algorithm>
#include <tuple>

namespace forebay {

Counter& CounterSet::get(const std::string& name) {
  std::lock_guard lock(mutex_);
  for (auto& [known, counter] : counters_) {
    if (known == name) return counter;
  }
  return counters_
      .emplace_back(std::piecewise_construct, std::forward_as_tuple(name), std::tuple<>())
      .second;
}

std::vector<std::pair<std::string, uint64_t>> CounterSet::snapshot() const {
  std::vector<std::pair<std::string, uint64_t>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, counter] : counters_) all.emplace_back(name, counter.get());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace forebay
