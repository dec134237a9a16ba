// A serial oracle of datatypes, for tests: random ones, made both as a TypeMap and as the plain
// list of every byte's displacement.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/typemap.h"

namespace forebay::plan {

struct OracleType {
  TypeMap map;
  std::vector<int64_t> bytes;  // in order
  int64_t lb = 0, ub = 0;

  int64_t extent() const { return ub - lb; }
};

class TypeOracle {
 public:
  explicit TypeOracle(uint64_t seed) : random_(seed) {}

  // Nested up to `depth`, of at most some thousand bytes. `forward`: what a file type may be, with
  // no byte below 0, no overlap, nothing backwards, and tiles that do not overlap either.
  OracleType make(int depth, bool forward) {
    for (;;) {
      OracleType made = depth == 0 ? run(few(12)) : combined(depth, forward);
      if (made.bytes.size() > kMostBytes) continue;
      if (!forward || fit_for_file(made)) return made;
    }
  }

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

 private:
  // None is rare, or nothing would be left of deep types.
  int64_t few(int64_t most) { return pick(0, 19) == 0 ? 0 : pick(1, most); }

  static constexpr size_t kMostBytes = 3000;

  static bool fit_for_file(const OracleType& t) {
    if (!std::is_sorted(t.bytes.begin(), t.bytes.end(), std::less_equal<>())) return false;
    if (t.bytes.empty()) return false;
    return t.bytes.front() >= 0 && t.extent() >= t.bytes.back() + 1 - t.bytes.front();
  }

  OracleType run(int64_t n) {
    OracleType t{TypeMap::bytes(n).value(), {}, 0, n};
    for (int64_t i = 0; i < n; ++i) t.bytes.push_back(i);
    return t;
  }

  // `count` copies of `of` from `at` on, `stride` apart.
  static void append(OracleType& to, const OracleType& of, int64_t at, int64_t count,
                     int64_t stride, bool& any) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = at + i * stride;
      for (const int64_t b : of.bytes) to.bytes.push_back(place + b);
      to.lb = any ? std::min(to.lb, place + of.lb) : place + of.lb;
      to.ub = any ? std::max(to.ub, place + of.ub) : place + of.ub;
      any = true;
    }
  }

  int64_t stride_for(const OracleType& of, bool forward) {
    if (forward || pick(0, 2) == 0) return std::max<int64_t>(of.extent(), 0) + pick(0, 3) * 4;
    return pick(-40, 40);
  }

  OracleType combined(int depth, bool forward) {
    const OracleType of = make(depth - 1, forward && pick(0, 1) == 0);
    OracleType to;
    bool any = false;
    switch (pick(0, 5)) {
      case 0: {
        const int64_t n = few(5);
        append(to, of, 0, n, of.extent(), any);
        to.map = TypeMap::contiguous(n, of.map).value();
        break;
      }
      case 1: {
        const int64_t n = few(4), block = few(3);
        const int64_t stride = stride_for(of, forward) * std::max<int64_t>(block, 1);
        for (int64_t i = 0; i < n; ++i) append(to, of, i * stride, block, of.extent(), any);
        to.map = TypeMap::vector(n, block, stride, of.map).value();
        break;
      }
      case 2:
        indexed(to, of, forward);
        break;
      case 3:
        indexed_block(to, of, forward);
        break;
      case 4:
        structure(to, of, depth, forward);
        break;
      default: {
        to = of;
        to.lb = forward ? 0 : pick(-20, 20);
        to.ub = to.lb + (forward ? of.ub + pick(0, 12) : pick(-30, 60));
        to.map = TypeMap::resized(of.map, to.lb, to.extent()).value();
      }
    }
    return to;
  }

  int64_t place_after(int64_t end, bool forward) {
    return forward ? end + pick(0, 2) * 4 : pick(-60, 60);
  }

  void indexed(OracleType& to, const OracleType& of, bool forward) {
    std::vector<TypeMap::Block> blocks;
    bool any = false;
    int64_t end = 0;
    const bool regular = pick(0, 3) == 0;
    for (int64_t i = few(5); i > 0; --i) {
      blocks.push_back({place_after(end, forward), few(3)});
      if (regular) blocks.back() = {blocks.size() > 1 ? blocks[blocks.size() - 2].at + 24 : 3, 2};
      end = blocks.back().at + blocks.back().count * of.extent();
      append(to, of, blocks.back().at, blocks.back().count, of.extent(), any);
    }
    to.map = TypeMap::indexed(blocks, of.map).value();
  }

  void indexed_block(OracleType& to, const OracleType& of, bool forward) {
    std::vector<int64_t> at;
    bool any = false;
    int64_t end = 0;
    const int64_t block = few(3);
    for (int64_t i = few(5); i > 0; --i) {
      at.push_back(place_after(end, forward));
      end = at.back() + block * of.extent();
      append(to, of, at.back(), block, of.extent(), any);
    }
    to.map = TypeMap::indexed_block(block, at, of.map).value();
  }

  void structure(OracleType& to, const OracleType& of, int depth, bool forward) {
    std::vector<TypeMap::Member> members;
    bool any = false;
    int64_t end = 0;
    for (int64_t i = few(4); i > 0; --i) {
      const OracleType member = pick(0, 1) ? of : make(depth - 1, false);
      members.push_back({place_after(end, forward), few(2), member.map});
      end = members.back().at + members.back().count * member.extent();
      append(to, member, members.back().at, members.back().count, member.extent(), any);
    }
    to.map = TypeMap::structure(members).value();
  }

  std::mt19937_64 random_;
};

}  // namespace forebay::plan
