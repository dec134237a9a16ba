#include "random_type.h"

#include <algorithm>

namespace fuzz {
namespace {

TypePtr grow(Rng& rng, const TypeRules& rules, int depth);

int64_t hole(Rng& rng, const TypeRules& rules) {
  return rng.chance(40) ? 0 : rng.between(1, rng.chance(10) ? 40 : 4) * rules.gap;
}

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

TypePtr random_vector(Rng& rng, const TypeRules& rules, const TypePtr& t) {
  bool in_bytes = rng.chance(50);
  int length = static_cast<int>(rng.between(1, 3));
  int64_t stride = in_bytes ? round_up(length * t->extent(), rules.gap) + hole(rng, rules)
                            : length + rng.between(0, 3);
  if (!rules.file && rules.any_lb && rng.chance(20)) stride = -stride;
  return vector_of(static_cast<int>(rng.between(1, 5)), length, stride, in_bytes, t);
}

// Blocks one after the other with holes between; in memory they may begin below zero and come in
// any order.
TypePtr random_blocks(Rng& rng, const TypeRules& rules, const TypePtr& t) {
  bool in_bytes = rng.chance(60), equal = rng.chance(30);
  size_t blocks = static_cast<size_t>(rng.between(1, 5));
  std::vector<int> lengths(blocks);
  std::vector<int64_t> places(blocks);
  int each = static_cast<int>(rng.between(1, 3));
  int64_t cursor = rng.chance(60) || !rules.any_lb ? 0 : rng.between(rules.file ? 0 : -3, 3);
  if (in_bytes) cursor *= rules.gap;
  for (size_t i = 0; i < blocks; ++i) {
    lengths[i] = equal ? each : static_cast<int>(rng.between(rules.empty_blocks ? 0 : 1, 3));
    // Where a block begins is its lb; in bytes the lb is taken off again, so that nothing overlaps.
    if (in_bytes) {
      cursor = round_up(cursor, rules.gap);
      places[i] = rules.file ? cursor : cursor - t->lb;
      cursor += lengths[i] * t->extent() + hole(rng, rules);
    } else {
      places[i] = cursor;
      cursor += lengths[i] + (rng.chance(40) ? 0 : rng.between(1, 4));
    }
  }
  if (!rules.file && rng.chance(40)) rng.shuffle(places);
  // Shuffled places fit the block lengths only if those are equal.
  if (!equal && !std::is_sorted(places.begin(), places.end())) {
    int least = *std::min_element(lengths.begin(), lengths.end());
    std::fill(lengths.begin(), lengths.end(), least);
  }
  if (equal && rng.chance(60)) return indexed_block(each, std::move(places), in_bytes, t);
  return indexed(std::move(lengths), std::move(places), in_bytes, t);
}

TypePtr random_struct(Rng& rng, const TypeRules& rules, int depth) {
  size_t blocks = static_cast<size_t>(rng.between(1, 3));
  std::vector<int> lengths;
  std::vector<int64_t> places;
  std::vector<TypePtr> parts;
  int64_t cursor = rng.chance(70) ? 0 : rng.between(0, 3) * rules.gap;
  for (size_t i = 0; i < blocks; ++i) {
    TypePtr t = grow(rng, rules, depth - 1);
    cursor = round_up(cursor, rules.gap);
    lengths.push_back(static_cast<int>(rng.between(1, 2)));
    places.push_back(rules.file ? cursor : cursor - t->lb);
    cursor = places.back() + t->lb + lengths.back() * t->extent() + hole(rng, rules);
    parts.push_back(std::move(t));
  }
  TypePtr plain = structure(std::move(lengths), std::move(places), std::move(parts));
  int64_t lb = std::min<int64_t>(plain->lb, 0);
  return resized(lb, round_up(plain->ub - lb, rules.gap) + hole(rng, rules), plain);
}

TypePtr random_subarray(Rng& rng, const TypeRules& rules, const TypePtr& child) {
  if (child->lb < 0) return child;
  TypePtr t = child->lb == 0 ? child : resized(0, round_up(child->ub, rules.gap), child);
  std::vector<int> sizes, subsizes, starts;
  for (int64_t dims = rng.between(1, 3); dims > 0; --dims) {
    sizes.push_back(static_cast<int>(rng.between(1, 5)));
    subsizes.push_back(static_cast<int>(rng.between(1, sizes.back())));
    starts.push_back(static_cast<int>(rng.between(0, sizes.back() - subsizes.back())));
  }
  return subarray(std::move(sizes), std::move(subsizes), std::move(starts), rng.chance(30), t);
}

TypePtr random_resized(Rng& rng, const TypeRules& rules, const TypePtr& t) {
  int64_t below = rules.file || !rules.any_lb ? 0 : hole(rng, rules);
  return resized(t->lb - below, round_up(t->extent() + below, rules.gap) + hole(rng, rules), t);
}

bool fits(const TypeRules& rules, const TypePtr& t) {
  return t->size > 0 && t->extent() <= rules.max_extent && t->pieces.size() <= 600;
}

TypePtr grow(Rng& rng, const TypeRules& rules, int depth) {
  if (depth <= 0) return rules.leaf(rng);
  if (rng.chance(20)) {
    TypePtr t = random_struct(rng, rules, depth);
    return fits(rules, t) ? t : rules.leaf(rng);
  }
  TypePtr child = grow(rng, rules, depth - 1), t;
  switch (rng.below(8)) {
    case 0:
      t = contiguous(static_cast<int>(rng.between(1, 6)), child);
      break;
    case 1:
    case 2:
      t = random_vector(rng, rules, child);
      break;
    case 3:
    case 4:
      t = random_blocks(rng, rules, child);
      break;
    case 5:
      t = random_subarray(rng, rules, child);
      break;
    case 6:
      t = random_resized(rng, rules, child);
      break;
    default:
      t = dup(child);
  }
  return fits(rules, t) ? t : child;
}

}  // namespace

TypePtr random_type(Rng& rng, const TypeRules& rules) {
  return grow(rng, rules, static_cast<int>(rng.between(0, rules.depth)));
}

}  // namespace fuzz
