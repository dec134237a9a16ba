#include "plan/windows.h"

#include <algorithm>

#include "core/assert.h"
#include "plan/order.h"
#include "plan/realms.h"

namespace forebay::plan {
namespace {

class ByOffset final : public Windows {
 public:
  ByOffset(std::span<const ViewPart> parts, const TiledMap& realm, WindowLimits limits, Gaps gaps)
      : coverage_(parts, ranges_of(realm), realm.bounds(Length(0), realm.total())),
        limits_(limits),
        gaps_(gaps),
        ahead_(take()) {}

  std::vector<Extent> next() override {
    std::vector<Extent> runs = std::move(ahead_);
    ahead_ = take();
    first_ = false;
    return runs;
  }
  bool done() const override { return ahead_.empty() && !first_; }
  uint64_t steps() const override { return coverage_.steps(); }

 private:
  std::vector<Extent> take() {
    return gaps_ == Gaps::never ? coverage_.next(limits_.bytes, limits_.runs)
                                : coverage_.next_through(limits_.bytes, limits_.runs);
  }

  Coverage coverage_;
  const WindowLimits limits_;
  const Gaps gaps_;
  std::vector<Extent> ahead_;
  bool first_ = true;
};

// How a window's limits are shared out: what each target that is driven has for the ends of its
// item, beside the runs that its load pays for (two may be cut); and what a run counts for at
// least.
struct Shares {
  static constexpr size_t kCut = 2;
  uint64_t stripe;     // as the order has it: so large that few targets are driven if runs are few
  uint64_t least_run;  // counts for so many bytes

  Shares(const Striping& striping, const WindowLimits& limits) {
    FOREBAY_ASSERT(limits.bytes > 0 && limits.runs >= 2 * kCut);
    const uint64_t most_driven = limits.runs / (2 * kCut);
    stripe = std::max(striping.stripe, (limits.bytes + most_driven - 1) / most_driven);
    const uint64_t driven = std::clamp<uint64_t>(limits.bytes / stripe, 1, striping.targets);
    const auto most = static_cast<uint64_t>((1 + kThreshold) * static_cast<double>(limits.bytes));
    const uint64_t runs = limits.runs - driven * kCut;
    least_run = (most + runs - 1) / runs;
  }
  // Of an item. Those that begin in it pay for themselves; one may have begun before it.
  size_t runs(uint64_t load) const { return load / least_run + kCut; }
};

// Adds a run to the loads of its targets.
void add_by_target(Extent run, const Striping& striping, uint64_t least_run,
                   std::vector<uint64_t>& loads) {
  uint64_t at = run.offset.value;
  const auto to_next_stripe = [&] {
    const uint64_t stripe = at / striping.stripe;
    const uint64_t end = std::min(run.end().value, (stripe + 1) * striping.stripe);
    loads[(stripe + striping.first) % striping.targets] += std::max(least_run, end - at);
    at = end;
  };
  if (at % striping.stripe != 0) to_next_stripe();
  const uint64_t round = striping.stripe * striping.targets;
  const uint64_t turns = (run.end().value - at) / round;  // over all alike
  if (turns > 0)
    for (uint64_t& n : loads) n += turns * std::max(least_run, striping.stripe);
  at += turns * round;
  while (at < run.end().value) to_next_stripe();
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
      if (part.empty() || all.empty() || part.apart_from(all)) continue;
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
           WindowLimits limits, size_t aggregator, std::vector<uint64_t> loads)
      : shares_(striping, limits),
        aggregator_(aggregator),
        targets_(parts, realm, striping),
        groups_(striping.targets) {
    const size_t aggregators = loads.size() / striping.targets;
    const auto mine = loads.begin() + static_cast<ptrdiff_t>(aggregator * striping.targets);
    left_.assign(mine, mine + striping.targets);
    iterations_ = order_by_target({.aggregators = aggregators,
                                   .targets = striping.targets,
                                   .bytes = std::move(loads),
                                   .buffer = limits.bytes,
                                   .stripe = shares_.stripe,
                                   .threshold = kThreshold});
  }

  std::vector<Extent> next() override {
    std::vector<Extent> runs;
    if (at_ < iterations_.size())
      for (const OrderItem& item : iterations_[at_][aggregator_]) take(item, runs);
    ++at_;
    return joined(std::move(runs));
  }

  bool done() const override { return at_ >= iterations_.size() && at_ > 0; }
  uint64_t steps() const override {
    uint64_t all = steps_;
    for (const auto& group : groups_)
      if (group) all += group->coverage.steps();
    return all;
  }

 private:
  // Up to where the item goes by load, or beyond: its bytes and its runs are bounds of what it
  // holds. So with the last item of a group all of it has been taken.
  void take(const OrderItem& item, std::vector<Extent>& runs) {
    auto& group = groups_[item.target];
    if (!group) group = targets_.group(item.target);
    for (const Extent& run : group->coverage.next(item.bytes, shares_.runs(item.bytes)))
      runs.push_back(run);
    left_[item.target] -= item.bytes;
    if (left_[item.target] > 0) return;
    FOREBAY_ASSERT(group->coverage.next(1, 1).empty(), "bytes that no window has");
    steps_ += group->coverage.steps();
    group = nullptr;
  }

  const Shares shares_;
  const size_t aggregator_;
  Iterations iterations_;
  const Targets targets_;
  std::vector<std::unique_ptr<Targets::Group>> groups_;  // by target: those that are begun
  std::vector<uint64_t> left_;                           // of the loads, by target
  size_t at_ = 0;                                        // iterations
  uint64_t steps_ = 0;                                   // of groups that are done
};

}  // namespace

std::unique_ptr<Windows> windows_by_offset(std::span<const ViewPart> parts, const TiledMap& realm,
                                           WindowLimits limits, Gaps gaps) {
  return std::make_unique<ByOffset>(parts, realm, limits, gaps);
}

std::vector<uint64_t> loads_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                      const Striping& striping, const WindowLimits& limits) {
  const uint64_t least_run = Shares(striping, limits).least_run;
  std::vector<uint64_t> loads(striping.targets);
  Coverage coverage(parts, ranges_of(realm), realm.bounds(Length(0), realm.total()));
  for (auto runs = coverage.next(kMaxOffset, limits.runs); !runs.empty();
       runs = coverage.next(kMaxOffset, limits.runs))
    for (const Extent& run : runs) add_by_target(run, striping, least_run, loads);
  return loads;
}

std::unique_ptr<Windows> windows_by_target(std::span<const ViewPart> parts, const TiledMap& realm,
                                           const Striping& striping, WindowLimits limits,
                                           size_t aggregator, std::vector<uint64_t> loads) {
  return std::make_unique<ByTarget>(parts, realm, striping, limits, aggregator, std::move(loads));
}

}  // namespace forebay::plan
