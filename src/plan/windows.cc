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

// Adds a run's bytes to those of its targets.
void add_by_target(Extent run, const Striping& striping, std::vector<uint64_t>& bytes) {
  const uint64_t turns = run.length.value / striping.stripe / striping.targets;  // over all alike
  if (turns > 0)
    for (uint64_t& n : bytes) n += turns * striping.stripe;
  uint64_t at = run.offset.value + turns * striping.stripe * striping.targets;
  while (at < run.end().value) {
    const uint64_t stripe = at / striping.stripe;
    const uint64_t end = std::min(run.end().value, (stripe + 1) * striping.stripe);
    bytes[(stripe + striping.first) % striping.targets] += end - at;
    at = end;
  }
}

// The parts of a realm by target. What it makes for a target holds the parts that come to its
// stripes, not those of all ranks.
class Targets {
 public:
  struct Group {
    Group(std::vector<ViewPart> near, Ranges ranges, Extent bounds)
        : parts(std::move(near)), coverage(parts, std::move(ranges), bounds) {}
    const std::vector<ViewPart> parts;
    Coverage coverage;
  };

  Targets(std::span<const ViewPart> parts, const TiledMap& realm, const Striping& striping)
      : realm_(realm),
        striping_(striping),
        stripes_(cyclic_realms(striping.stripe, striping.targets)) {
    const Extent all = realm.bounds(Length(0), realm.total());
    for (const ViewPart& part : parts) {
      if (part.empty() || all.empty()) continue;
      ViewPart inside = part.within(all);
      if (inside.empty()) continue;
      parts_.push_back({inside.bounds(), std::move(inside)});
    }
  }

  std::unique_ptr<Group> group(uint32_t target) const {
    const uint64_t shift = striping_.targets - striping_.first % striping_.targets;
    const uint64_t residue = (target + shift) % striping_.targets;
    std::vector<ViewPart> near;
    Offset begin(kMaxOffset), end;
    for (const Bounded& one : parts_) {
      const Extent on_target = within_stripes(one.bounds, residue);
      if (on_target.empty()) continue;
      begin = std::min(begin, on_target.offset);
      end = std::max(end, on_target.end());
      near.push_back(one.part);
    }
    const Extent bounds = near.empty() ? Extent{} : Extent{begin, end - begin};
    return std::make_unique<Group>(
        std::move(near), in_both(ranges_of(realm_), ranges_of(stripes_[residue]), end), bounds);
  }

 private:
  struct Bounded {
    Extent bounds;
    ViewPart part;
  };

  // From the first to the last byte of a range that is in a stripe k with k % targets = residue.
  Extent within_stripes(Extent range, uint64_t residue) const {
    const uint64_t n = striping_.targets, low = range.offset.value / striping_.stripe,
                   high = (range.end().value - 1) / striping_.stripe;
    const uint64_t first = low + (residue + n - low % n) % n;
    if (first > high) return {};
    const uint64_t last = high - (high % n + n - residue) % n;
    const Offset begin = std::max(range.offset, Offset(first * striping_.stripe));
    const Offset end = std::min(range.end(), Offset((last + 1) * striping_.stripe));
    return {begin, end - begin};
  }

  const TiledMap realm_;
  const Striping striping_;
  const Realms stripes_;  // by residue
  std::vector<Bounded> parts_;
};

// Stripes of one target are apart, those of several that an aggregator drives may be neighbours:
// one request then.
std::vector<Extent> joined(std::vector<Extent> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  size_t last = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[last].end() == runs[i].offset)
      runs[last].length += runs[i].length;
    else
      runs[++last] = runs[i];
  }
  if (!runs.empty()) runs.resize(last + 1);
  return runs;
}

class ByTarget final : public Windows {
 public:
  ByTarget(std::span<const ViewPart> parts, const TiledMap& realm, const Striping& striping,
           WindowLimits limits, size_t aggregator, std::vector<uint64_t> bytes)
      : limits_(limits),
        aggregator_(aggregator),
        targets_(parts, realm, striping),
        groups_(striping.targets) {
    const size_t aggregators = bytes.size() / striping.targets;
    const auto mine = bytes.begin() + static_cast<ptrdiff_t>(aggregator * striping.targets);
    left_.assign(mine, mine + striping.targets);
    iterations_ = order_by_target({.aggregators = aggregators,
                                   .targets = striping.targets,
                                   .bytes = std::move(bytes),
                                   .buffer = limits.bytes,
                                   .stripe = striping.stripe,
                                   .threshold = kThreshold});
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
    return joined(std::move(runs));
  }

  bool done() const override {
    return at_ >= iterations_.size() && at_ > 0 &&
           std::all_of(left_.begin(), left_.end(), [](uint64_t n) { return n == 0; });
  }

 private:
  void take(uint32_t target, uint64_t bytes, std::vector<Extent>& runs) {
    const size_t room = limits_.runs - std::min(limits_.runs, runs.size());
    auto& group = groups_[target];
    if (!group) group = targets_.group(target);
    for (const Extent& run : group->coverage.next(bytes, room)) {
      left_[target] -= run.length.value;
      runs.push_back(run);
    }
    if (left_[target] == 0) group = nullptr;
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
  const Targets targets_;
  std::vector<std::unique_ptr<Targets::Group>> groups_;  // by target: those that are begun
  std::vector<uint64_t> left_;                           // bytes, by target
  size_t at_ = 0;                                        // iterations
};

}  // namespace

std::unique_ptr<Windows> windows_by_offset(std::span<const ViewPart> parts, const TiledMap& realm,
                                           WindowLimits limits) {
  return std::make_unique<ByOffset>(parts, realm, limits);
}

std::vector<uint64_t> bytes_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                      const Striping& striping) {
  std::vector<uint64_t> bytes(striping.targets);
  Coverage coverage(parts, ranges_of(realm), realm.bounds(Length(0), realm.total()));
  for (auto runs = coverage.next(kMaxOffset, 4096); !runs.empty();
       runs = coverage.next(kMaxOffset, 4096))
    for (const Extent& run : runs) add_by_target(run, striping, bytes);
  return bytes;
}

std::unique_ptr<Windows> windows_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                           const Striping& striping, WindowLimits limits,
                                           size_t aggregator, std::vector<uint64_t> bytes) {
  return std::make_unique<ByTarget>(parts, realm, striping, limits, aggregator, std::move(bytes));
}

}  // namespace forebay::plan
