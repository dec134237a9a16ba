// ViewPart: what one rank's data call names in the file: a part of the stream of its view. The view
// is monotone (TiledMap::monotone), so the bytes that lie in any range of the file are again a
// part, found without a look at its pieces.
//
// As numbers it is short: the view's loops, or the part's own pieces if they are fewer (paper 5,
// section 4.2.3: D pairs of the type against M of the access).
#pragma once

#include <span>
#include <vector>

#include "plan/tiled_map.h"

namespace forebay::plan {

struct ViewPart {
  TiledMap view;
  Length from, length;
  Extent around = {};  // holds all of its bytes, as far as who made it has told; empty: not told

  // Is it known at a glance that none of it is in the range?
  bool apart_from(Extent range) const {
    return !around.empty() && (around.end() <= range.offset || range.end() <= around.offset);
  }

  bool empty() const { return !length; }
  Extent bounds() const { return view.bounds(from, length); }
  ViewPart within(Extent range) const;
  TiledCursor cursor() const { return TiledCursor(view, from, length); }

  void encode(std::vector<int64_t>& numbers) const;
  // Takes one off the front. EPROTO, or what the makers of types say.
  static Result<ViewPart> decode(std::span<const int64_t>& numbers);
};

}  // namespace forebay::plan
