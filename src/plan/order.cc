#include "plan/order.h"

#include <algorithm>

#include "core/assert.h"
#include "plan/open_shop.h"

namespace forebay::plan {

std::span<const OrderItem> Iterations::One::operator[](size_t aggregator) const {
  const auto [first, last] =
      std::equal_range(who_.begin(), who_.end(), static_cast<uint32_t>(aggregator));
  return {items_ + (first - who_.begin()), static_cast<size_t>(last - first)};
}

Iterations::One Iterations::operator[](size_t iteration) const {
  const size_t begin = iteration == 0 ? 0 : ends_[iteration - 1];
  return {std::span(who_).subspan(begin, ends_[iteration] - begin), items_.data() + begin};
}

void Iterations::add(uint32_t aggregator, OrderItem item) {
  who_.push_back(aggregator);
  items_.push_back(item);
}

namespace {

// How an item is cut off a group.
struct Cut {
  uint64_t item;    // bytes of a full one
  uint64_t extend;  // what the last may have beyond that

  uint64_t next(uint64_t left) const { return left <= item + extend ? left : item; }
  uint32_t items(uint64_t bytes) const {
    const uint64_t n = bytes / item + (bytes % item > extend);
    FOREBAY_ASSERT(n < UINT32_MAX);
    return bytes == 0 ? 0 : std::max<uint32_t>(1, static_cast<uint32_t>(n));
  }
};

uint64_t rounded_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

// How many targets an aggregator may drive in one iteration: each has a stripe of the buffer at
// least, unless there is one only. Whoever has nothing does not count.
size_t drives(const OrderInput& in) {
  std::vector<bool> aggregators(in.aggregators), targets(in.targets);
  for (size_t i = 0; i < in.bytes.size(); ++i) {
    if (in.bytes[i] > 0) aggregators[i / in.targets] = targets[i % in.targets] = true;
  }
  const auto active = std::ranges::count(aggregators, true),
             used = std::ranges::count(targets, true);
  if (active == 0) return 1;
  return std::min<uint64_t>(std::max<uint64_t>(1, in.buffer / in.stripe),
                            rounded_up(static_cast<size_t>(used), static_cast<size_t>(active)));
}

// A part of the buffer is of whole stripes; else it begins on a page, so that what lies on pages in
// the file does in memory.
Cut cut_of(const OrderInput& in, size_t driven) {
  constexpr uint64_t kPage = 4096;
  uint64_t item = std::max<uint64_t>(1, in.buffer / driven);
  const uint64_t unit = in.stripe > 1 ? in.stripe : kPage;
  if (driven > 1 && item > unit) item -= item % unit;
  return {item, static_cast<uint64_t>(in.threshold * static_cast<double>(item))};
}

// Rows of an open shop: an aggregator that drives several targets has several, with as much work as
// there are iterations, but for the last (so rule 6 holds: a full row is never idle).
struct Rows {
  std::vector<uint32_t> aggregator;  // of each row
  std::vector<uint32_t> work;

  void add(uint32_t a, size_t targets) {
    aggregator.push_back(a);
    work.resize(work.size() + targets);
  }
};

// Rule 4.
uint64_t least_iterations(const std::vector<uint32_t>& items, const OrderInput& in, size_t driven) {
  std::vector<uint64_t> by_aggregator(in.aggregators), by_target(in.targets);
  for (size_t i = 0; i < items.size(); ++i) {
    by_aggregator[i / in.targets] += items[i], by_target[i % in.targets] += items[i];
  }
  return std::max(std::ranges::max(by_target), rounded_up(std::ranges::max(by_aggregator), driven));
}

Rows rows_of(const std::vector<uint32_t>& items, const OrderInput& in, uint64_t iterations) {
  Rows rows;
  rows.work.reserve(items.size());
  for (uint32_t a = 0; a < in.aggregators; ++a) {
    uint64_t room = 0;
    for (size_t t = 0; t < in.targets; ++t) {
      for (uint64_t left = items[a * in.targets + t]; left > 0;) {
        if (room == 0) rows.add(a, in.targets), room = iterations;
        const uint64_t n = std::min(left, room);
        rows.work[rows.work.size() - in.targets + t] = static_cast<uint32_t>(n);
        left -= n, room -= n;
      }
    }
  }
  return rows;
}

}  // namespace

Iterations order_by_target(const OrderInput& in) {
  FOREBAY_ASSERT(in.bytes.size() == in.aggregators * in.targets);
  FOREBAY_ASSERT(in.buffer > 0 && in.stripe > 0 && in.threshold >= 0 && in.threshold < 1);
  Iterations result;
  if (in.bytes.empty()) return result;
  const size_t driven = drives(in);
  const Cut cut = cut_of(in, driven);
  std::vector<uint32_t> items;
  for (const uint64_t n : in.bytes) items.push_back(cut.items(n));
  Rows rows = rows_of(items, in, least_iterations(items, in, driven));
  std::vector<uint64_t> left = in.bytes;
  OpenShop shop(rows.aggregator.size(), in.targets, std::move(rows.work));
  while (const uint64_t length = shop.next()) {
    const auto targets = shop.columns_of_rows();
    for (uint64_t i = 0; i < length; ++i) {
      for (size_t r = 0; r < targets.size(); ++r) {
        if (targets[r] == OpenShop::kIdle) continue;
        uint64_t& group = left[rows.aggregator[r] * in.targets + targets[r]];
        const uint64_t n = cut.next(group);
        result.add(rows.aggregator[r], {targets[r], n});
        group -= n;
      }
      result.end_iteration();
    }
  }
  return result;
}

}  // namespace forebay::plan
