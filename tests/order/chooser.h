// Chooser: who decides where a run of the simulated world could go on in several ways.
//
// Odometer goes through every run there is, one after the other, each from scratch: it repeats the
// choices of the run before up to the last that has an alternative left, and takes that. Dice
// chooses at random.
#pragma once

#include <random>
#include <vector>

#include "core/assert.h"

namespace forebay::order {

class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual unsigned pick(unsigned options) = 0;  // below `options`, which is not 0
};

class Odometer final : public Chooser {
 public:
  unsigned pick(unsigned options) override {
    if (depth_ == path_.size()) path_.push_back({0, options});
    // Otherwise the world is not the same from run to run, and not every run is seen.
    FOREBAY_ASSERT(path_[depth_].options == options);
    return path_[depth_++].taken;
  }

  // To the next run; false if there is none.
  bool advance() {
    FOREBAY_ASSERT(depth_ == path_.size());
    while (!path_.empty() && path_.back().taken + 1 == path_.back().options) path_.pop_back();
    depth_ = 0;
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

 private:
  struct Choice {
    unsigned taken, options;
  };
  std::vector<Choice> path_;
  size_t depth_ = 0;
};

class Dice final : public Chooser {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  unsigned pick(unsigned options) override { return static_cast<unsigned>(random_() % options); }

 private:
  std::mt19937_64 random_;
};

}  // namespace forebay::order
