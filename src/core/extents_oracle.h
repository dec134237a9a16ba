// The oracle of the extent tests: the definition in extents.h taken literally, byte by byte, over
// universes of a few hundred bytes.
#pragma once

#include <random>
#include <set>
#include <vector>

#include "core/extents.h"

namespace forebay {

using Bytes = std::vector<int64_t>;  // the stream: which byte each place of it is

struct Shape {
  std::vector<Extent> blocks;
  std::vector<Stride> loops;
};

inline void walk_bytes(const Shape& shape, size_t loop, int64_t shift, Bytes& out) {
  if (loop < shape.loops.size()) {
    for (uint64_t i = 0; i < shape.loops[loop].count; ++i) {
      walk_bytes(shape, loop + 1, shift + static_cast<int64_t>(i) * shape.loops[loop].stride, out);
    }
    return;
  }
  for (const Extent& b : shape.blocks) {
    for (uint64_t k = 0; k < b.length.value; ++k) {
      out.push_back(static_cast<int64_t>(b.offset.value + k) + shift);
    }
  }
}

inline Bytes bytes_of(const Shape& shape) {
  Bytes out;
  walk_bytes(shape, 0, 0, out);
  return out;
}

inline Bytes bytes_of(const Extents& e) {
  return bytes_of(
      Shape{{e.blocks().begin(), e.blocks().end()}, {e.loops().begin(), e.loops().end()}});
}

inline std::set<int64_t> set_of(const std::vector<Extent>& list) {
  const Bytes bytes = bytes_of(Shape{list, {}});
  return {bytes.begin(), bytes.end()};
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t n) { return engine_() % n; }
  int64_t between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(below(static_cast<uint64_t>(hi - lo + 1)));
  }

  std::vector<Extent> list(size_t most, uint64_t universe = 300, uint64_t longest = 20) {
    std::vector<Extent> made;
    for (size_t n = below(most + 1); n > 0; --n) {
      made.push_back({Offset(below(universe)), Length(below(longest + 1))});
      // Now and then a neighbour, so that joining happens.
      if (below(4) == 0) made.push_back({made.back().end(), Length(below(longest + 1))});
    }
    return made;
  }

  Shape shape() {
    Shape made{list(4), {}};
    for (size_t n = below(4); n > 0; --n) {
      int64_t stride = between(-30, 60);
      if (!made.blocks.empty() && below(3) == 0) {
        stride = static_cast<int64_t>(made.blocks[0].length.value);
      }
      made.loops.push_back({below(12) == 0 ? 0 : 1 + below(5), stride});
    }
    return made;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace forebay
