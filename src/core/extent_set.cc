#include "core/extent_set.h"

#include <numeric>

#include "core/extents.h"

namespace forebay {
namespace {

// Appends to a sorted list, joining what touches or overlaps its end.
void append_joined(ExtentSet& set, const Extent& e) {
  if (e.empty()) return;
  if (!set.empty() && e.offset <= set.back().end()) {
    const Offset end = std::max(set.back().end(), e.end());
    set.back().length = end - set.back().offset;
  } else {
    set.push_back(e);
  }
}

bool by_offset(const Extent& a, const Extent& b) {
  return a.offset < b.offset;
}

}  // namespace

ExtentSet normalise(std::vector<Extent> list) {
  std::sort(list.begin(), list.end(), by_offset);
  ExtentSet set;
  for (const Extent& e : list) append_joined(set, e);
  return set;
}

bool is_normal(std::span<const Extent> list) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].empty()) return false;
    if (i > 0 && list[i - 1].end() >= list[i].offset) return false;
  }
  return true;
}

ExtentSet intersect(std::span<const Extent> a, std::span<const Extent> b) {
  FOREBAY_ASSERT(is_normal(a) && is_normal(b));
  ExtentSet both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Offset begin = std::max(a[i].offset, b[j].offset);
    const Offset end = std::min(a[i].end(), b[j].end());
    if (begin < end) both.push_back({begin, end - begin});
    a[i].end() < b[j].end() ? ++i : ++j;
  }
  return both;
}

ExtentSet subtract(std::span<const Extent> a, std::span<const Extent> b) {
  FOREBAY_ASSERT(is_normal(a) && is_normal(b));
  ExtentSet left;
  size_t j = 0;
  for (const Extent& e : a) {
    Offset at = e.offset;
    while (j < b.size() && b[j].end() <= at) ++j;
    // What reaches beyond e may also cut the next extent of a, so j stays on it.
    for (; j < b.size() && b[j].offset < e.end(); ++j) {
      if (at < b[j].offset) left.push_back({at, b[j].offset - at});
      at = std::min(b[j].end(), e.end());
      if (b[j].end() > e.end()) break;
    }
    if (at < e.end()) left.push_back({at, e.end() - at});
  }
  return left;
}

ExtentSet unite(std::span<const Extent> a, std::span<const Extent> b) {
  FOREBAY_ASSERT(is_normal(a) && is_normal(b));
  ExtentSet all;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const bool from_a = j == b.size() || (i < a.size() && by_offset(a[i], b[j]));
    append_joined(all, from_a ? a[i++] : b[j++]);
  }
  return all;
}

std::vector<Extent> split_at(std::span<const Extent> list, Length boundary) {
  FOREBAY_ASSERT(boundary.value > 0);
  std::vector<Extent> cut;
  for (Extent e : list) {
    while (!e.empty()) {
      const Length room(boundary.value - e.offset.value % boundary.value);
      const Length n = std::min(e.length, room);
      cut.push_back({e.offset, n});
      e = {e.offset + n, e.length - n};
    }
  }
  return cut;
}

namespace {

// 2^63 as a magnitude is fine: unsigned negation.
uint64_t magnitude(int64_t v) {
  return v < 0 ? -static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

uint64_t common_stride(const Extents& a, const Extents& b) {
  uint64_t divisor = 0;
  for (const Extents* e : {&a, &b}) {
    for (const Stride& loop : e->loops()) divisor = std::gcd(divisor, magnitude(loop.stride));
  }
  return divisor;
}

// The places modulo `period` that the blocks cover.
ExtentSet residues(const Extents& e, uint64_t period) {
  std::vector<Extent> list;
  for (const Extent& b : e.blocks()) {
    const uint64_t begin = b.offset.value % period;
    const uint64_t length = std::min(b.length.value, period);
    const uint64_t before_wrap = std::min(length, period - begin);
    list.push_back({Offset(begin), Length(before_wrap)});
    list.push_back({Offset(0), Length(length - before_wrap)});
  }
  return normalise(std::move(list));
}

// True only if no shift by multiples of all strides can bring the two together.
bool apart_modulo_strides(const Extents& a, const Extents& b, uint64_t limit) {
  const uint64_t period = common_stride(a, b);
  if (period <= 1 || a.blocks().size() > limit || b.blocks().size() > limit) return false;
  return intersect(residues(a, period), residues(b, period)).empty();
}

}  // namespace

bool may_overlap(const Extents& a, const Extents& b, uint64_t limit) {
  if (!a.bounds().overlaps(b.bounds())) return false;
  if (a.contiguous() && b.contiguous()) return true;
  if (apart_modulo_strides(a, b, limit)) return false;
  auto x = a.to_list(limit);
  if (!x) return true;
  auto y = b.to_list(limit);
  if (!y) return true;
  return !intersect(normalise(std::move(*x)), normalise(std::move(*y))).empty();
}

}  // namespace forebay
