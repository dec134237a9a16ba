#include "mpiio/dirty_bytes.h"

#include <algorithm>

namespace forebay::mpiio {
namespace {

constexpr uint32_t kWord = 64;

// The bits of [from, to) that lie in word `word`, which holds at least one of them.
uint64_t mask(uint32_t word, uint32_t from, uint32_t to) {
  const uint32_t begin = std::max(from, word * kWord) - word * kWord;
  const uint32_t end = std::min(to, (word + 1) * kWord) - word * kWord;
  return (~uint64_t{0} >> (kWord - (end - begin))) << begin;
}

}  // namespace

void DirtyBytes::add(uint32_t from, uint32_t to) {
  FOREBAY_ASSERT(from < to);
  const bool touches = !bounds_.any() || (from <= bounds_.high && to >= bounds_.low);
  if (!bounds_.scattered && !touches) scatter();
  if (bounds_.scattered) assign(from, to, true);
  bounds_.low = bounds_.any() ? std::min(bounds_.low, from) : from;
  bounds_.high = std::max(bounds_.high, to);
  gather();
}

void DirtyBytes::remove(uint32_t from, uint32_t to) {
  from = std::max(from, bounds_.low);
  to = std::min(to, bounds_.high);
  if (from >= to) return;
  if (from == bounds_.low && to == bounds_.high) return clear();
  const bool inside = from > bounds_.low && to < bounds_.high;
  if (!bounds_.scattered && inside) scatter();
  if (bounds_.scattered) assign(from, to, false);
  if (from == bounds_.low) bounds_.low = bounds_.scattered ? next_set(to) : to;
  if (to == bounds_.high) bounds_.high = bounds_.scattered ? end_of_set(from) : from;
  gather();
}

bool DirtyBytes::covers(uint32_t from, uint32_t to) const {
  if (from < bounds_.low || to > bounds_.high) return false;
  return !bounds_.scattered || run_end(from) >= to;
}

void DirtyBytes::clear() {
  if (bounds_.scattered) assign(bounds_.low, bounds_.high, false);
  bounds_ = {};
}

void DirtyBytes::scatter() {
  assign(bounds_.low, bounds_.high, true);
  bounds_.scattered = true;
}

void DirtyBytes::gather() {
  if (!bounds_.scattered || bounds_.bits != bounds_.high - bounds_.low) return;
  assign(bounds_.low, bounds_.high, false);
  bounds_.scattered = false;
}

void DirtyBytes::assign(uint32_t from, uint32_t to, bool value) {
  for (uint32_t word = from / kWord; word * kWord < to; ++word) {
    const uint64_t bits = mask(word, from, to);
    const uint64_t changed = value ? ~words_[word] & bits : words_[word] & bits;
    const uint32_t count = changed == 0              ? 0
                           : changed == ~uint64_t{0} ? kWord
                                                     : std::popcount(changed);
    words_[word] ^= changed;
    bounds_.bits += value ? count : -count;
  }
}

uint32_t DirtyBytes::run_end(uint32_t from) const {
  if (!bounds_.scattered) return bounds_.high;
  uint32_t word = from / kWord;
  uint64_t clear = ~words_[word] & (~uint64_t{0} << (from % kWord));
  while (clear == 0 && ++word * kWord < bounds_.high) clear = ~words_[word];
  if (clear == 0) return bounds_.high;
  return word * kWord + static_cast<uint32_t>(std::countr_zero(clear));
}

uint32_t DirtyBytes::next_set(uint32_t from) const {
  uint32_t word = from / kWord;
  uint64_t set = words_[word] & (~uint64_t{0} << (from % kWord));
  while (set == 0) set = words_[++word];
  return word * kWord + static_cast<uint32_t>(std::countr_zero(set));
}

uint32_t DirtyBytes::end_of_set(uint32_t to) const {
  uint32_t word = (to - 1) / kWord;
  uint64_t set = words_[word] & (~uint64_t{0} >> (kWord - 1 - (to - 1) % kWord));
  while (set == 0) set = words_[--word];
  return (word + 1) * kWord - static_cast<uint32_t>(std::countl_zero(set));
}

}  // namespace forebay::mpiio
