// ToldViews: which of a rank's views the aggregators of a file know. They keep each in a slot, by
// which the rank names it from then on: through other views, and if the program sets an equal one
// again. What is short is told whole at the first call that needs it. What is long is at the
// second; at the first, each aggregator is told what lies in its realm (ViewPart::encode_in), and
// perhaps nobody comes again.
//
// Invariants: 1. what is known here is in that slot of every aggregator: it was told whole, all
// ranks have agreed that it arrived, and nothing was put there since; views are equal if their
// nodes are, all of them. 2. Whatever an aggregator has in its slots is known here, or is let go of
// with the next that it is told: a call that failed half way leaves no more. 3. All that is kept,
// here and there, has `most` numbers together, but for the view of the current call here.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "plan/tiled_map.h"

namespace forebay::plan {

class ToldViews {
 public:
  static constexpr size_t kSlots = 8;
  static constexpr size_t kShort = 4096;  // numbers

  // One that is short always finds room.
  explicit ToldViews(uint64_t most) : most_(std::max<uint64_t>(most, kShort)) {}

  // A call comes with this view. Do they know it?
  bool use(const TiledMap& view);
  uint32_t slot() const { return slot_; }
  // If not: appends its description, if all of it is to be told. May throw std::bad_alloc.
  bool describe(std::vector<int64_t>& numbers);
  // Slots, by bits, which the aggregators empty before they put in what was described.
  uint32_t let_go() const { return let_go_; }
  // They have done so, and have it.
  void told_whole();
  void told_part() { let_go_ = 0; }
  // They are others now, who know nothing.
  void forget();

 private:
  struct View {
    TiledMap map;
    uint64_t numbers = 0;  // of its description; 0: not counted, and not kept for later calls
    uint64_t last_use = 0;
    bool known = false;
    bool too_long = false;
  };
  View* find(const TiledMap& view);
  View* oldest_other();
  void drop(View& view);
  void make_room();

  const uint64_t most_;
  std::array<View, kSlots> views_;
  uint32_t slot_ = 0, let_go_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace forebay::plan
