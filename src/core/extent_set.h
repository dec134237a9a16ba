// Sets of bytes: sorted, disjoint, joined lists of extents ("normal form"), and their algebra. Pure
// functions, linear in their input after the sort of normalise(). Where a set is asked for, a list
// that is not in normal form is a bug of the caller (asserted).
#pragma once

#include <span>
#include <vector>

#include "core/types.h"

namespace forebay {

class Extents;

// One range of bytes.
struct Extent {
  Offset offset;
  Length length;

  constexpr Offset end() const { return offset + length; }
  constexpr bool empty() const { return length.value == 0; }
  constexpr bool overlaps(const Extent& o) const { return offset < o.end() && o.offset < end(); }
  constexpr bool operator==(const Extent&) const = default;
};

using ExtentSet = std::vector<Extent>;

ExtentSet normalise(std::vector<Extent> list);
bool is_normal(std::span<const Extent> list);
ExtentSet intersect(std::span<const Extent> a, std::span<const Extent> b);
ExtentSet subtract(std::span<const Extent> a, std::span<const Extent> b);
ExtentSet unite(std::span<const Extent> a, std::span<const Extent> b);

// Cuts every extent of a list (in any order) at the multiples of `boundary` (a stripe, a page, a
// chunk), keeping the order. Empty extents are left out.
std::vector<Extent> split_at(std::span<const Extent> list, Length boundary);

// Do two Extents share a byte? Never no for two that overlap. Exact while both unroll into at most
// `limit` pieces. Beyond that it says no where their bounds or their places modulo the strides tell
// (the interleaved views of many ranks), and otherwise yes.
bool may_overlap(const Extents& a, const Extents& b, uint64_t limit = 4096);

}  // namespace forebay
