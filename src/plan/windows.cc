#include "plan/windows.h"

#include <algorithm>

#include "plan/order.h"
#include "plan/realms.h"

namespace forebay::plan {
namespace {

class ByOffset final : public Windows {
 public:
  ByOffset(std::span<const ViewPart> parts, const TiledMap& realm, WindowLimits limits)
      : coverage_(parts, ranges_of(realm), realm.bounds(Length(0), realm.total())),
        limits_(limits),
        ahead_(take()) {}

  std::vector<Extent> next() override {
    std::vector<Extent> runs = std::move(ahead_);
    ahead_ = take();
    first_ = false;
    return runs;
  }
  bool done() const override { return ahead_.empty() && !first_; }

 private:
  std::vector<Extent> take() { return coverage_.next(limits_.bytes, limits_.runs); }

  Coverage coverage_;
  const WindowLimits limits_;
  std::vector<Extent> ahead_;
  bool first_ = true;
};

Offset end_of(std::span<const ViewPart> parts) {
  Offset end;
  for (const ViewPart& part : parts) end = std::max(end, part.bounds().end());
  return end;
}

// By target: what of the realm lies there.
std::vector<Ranges> groups_of(const TiledMap& realm, const Striping& striping, Offset end) {
  const Realms stripes = cyclic_realms(striping.stripe, striping.targets);
  const size_t shift = striping.targets - striping.first % striping.targets;
  std::vector<Ranges> groups;
  for (size_t target = 0; target < striping.targets; ++target)
    groups.push_back(
        in_both(ranges_of(realm), ranges_of(stripes[(target + shift) % striping.targets]), end));
  return groups;
}

class ByTarget final : public Windows {
 public:
  ByTarget(std::span<const ViewPart> parts, const TiledMap& realm, const Striping& striping,
           WindowLimits limits, size_t aggregator, std::vector<uint64_t> bytes)
      : limits_(limits), aggregator_(aggregator) {
    const size_t aggregators = bytes.size() / striping.targets;
    const auto mine = bytes.begin() + static_cast<ptrdiff_t>(aggregator * striping.targets);
    left_.assign(mine, mine + striping.targets);
    iterations_ = order_by_target({.aggregators = aggregators,
                                   .targets = striping.targets,
                                   .bytes = std::move(bytes),
                                   .buffer = limits.bytes,
                                   .threshold = kThreshold});
    for (Ranges& group : groups_of(realm, striping, end_of(parts)))
      groups_.emplace_back(parts, std::move(group));
  }

  std::vector<Extent> next() override {
    std::vector<Extent> runs;
    if (at_ < iterations_.size()) {
      for (const OrderItem& item : iterations_[at_][aggregator_])
        take(item.target, item.bytes, runs);
      ++at_;
    } else {
      take_rest(runs);
    }
    std::sort(runs.begin(), runs.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    return runs;
  }

  bool done() const override {
    return at_ >= iterations_.size() && at_ > 0 &&
           std::all_of(left_.begin(), left_.end(), [](uint64_t n) { return n == 0; });
  }

 private:
  void take(uint32_t target, uint64_t bytes, std::vector<Extent>& runs) {
    const size_t room = limits_.runs - std::min(limits_.runs, runs.size());
    for (const Extent& run : groups_[target].next(bytes, room)) {
      left_[target] -= run.length.value;
      runs.push_back(run);
    }
  }

  // What did not fit because it is in too many runs.
  void take_rest(std::vector<Extent>& runs) {
    uint64_t room = limits_.bytes;
    ++at_;
    for (uint32_t target = 0; target < groups_.size() && room > 0; ++target) {
      const uint64_t before = left_[target];
      if (before > 0) take(target, std::min(room, before), runs);
      room -= before - left_[target];
    }
  }

  const WindowLimits limits_;
  const size_t aggregator_;
  Iterations iterations_;
  std::vector<Coverage> groups_;  // by target
  std::vector<uint64_t> left_;    // bytes, by target
  size_t at_ = 0;                 // iterations
};

}  // namespace

std::unique_ptr<Windows> windows_by_offset(std::span<const ViewPart> parts, const TiledMap& realm,
                                           WindowLimits limits) {
  return std::make_unique<ByOffset>(parts, realm, limits);
}

std::vector<uint64_t> bytes_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                      const Striping& striping) {
  std::vector<uint64_t> bytes;
  for (Ranges& group : groups_of(realm, striping, end_of(parts)))
    bytes.push_back(Coverage(parts, std::move(group)).count());
  return bytes;
}

std::unique_ptr<Windows> windows_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                           const Striping& striping, WindowLimits limits,
                                           size_t aggregator, std::vector<uint64_t> bytes) {
  return std::make_unique<ByTarget>(parts, realm, striping, limits, aggregator, std::move(bytes));
}

}  // namespace forebay::plan
