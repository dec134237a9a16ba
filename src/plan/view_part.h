// ViewPart: what one rank's data call names in the file: a part of the stream of its view. The view
// is monotone (TiledMap::monotone), so the bytes that lie in any range of the file are again a
// part, found without a look at its pieces.
//
// As numbers it is short: the view's loops, or the part's own pieces if they are fewer (paper 5,
// section 4.2.3: D pairs of the type against M of the access). Where both are many, each of A
// aggregators is told the pieces in its own realm: M in all rather than A times M.
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

  void encode(std::vector<int64_t>& numbers) const { encode_part(nullptr, numbers, SIZE_MAX); }
  // False, without a look at the rest: they are more than `most`, and none is added.
  bool encode(std::vector<int64_t>& numbers, size_t most) const {
    return encode_part(nullptr, numbers, most);
  }
  // What lies in a realm (plan/realms.h): as few numbers as that takes, or as all of the part
  // within the realm's bounds; none at all if there is nothing.
  void encode_in(const TiledMap& realm, std::vector<int64_t>& numbers) const;
  // Takes one off the front. EPROTO, or what the makers of types say.
  static Result<ViewPart> decode(std::span<const int64_t>& numbers);

 private:
  bool encode_part(const TiledMap* realm, std::vector<int64_t>& numbers, size_t most) const;
};

}  // namespace forebay::plan
