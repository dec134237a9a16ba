#include "plan/view_part.h"

namespace forebay::plan {
namespace {

// Of a description that is not worth shortening.
constexpr size_t kShort = 32;

Result<TiledMap> map_of(const Extents& extents) {
  std::vector<TypeMap::Block> blocks;
  blocks.reserve(extents.blocks().size());
  for (const Extent& e : extents.blocks())
    blocks.push_back({static_cast<int64_t>(e.offset.value), static_cast<int64_t>(e.length.value)});
  auto byte = TypeMap::bytes(1);
  auto map = TypeMap::indexed(blocks, *byte);
  for (size_t i = extents.loops().size(); map && i-- > 0;) {
    const Stride& loop = extents.loops()[i];
    map = TypeMap::vector(static_cast<int64_t>(loop.count), 1, loop.stride, *map);
  }
  if (!map) return map.error();
  return TiledMap::once(Offset(0), *map);
}

}  // namespace

ViewPart ViewPart::within(Extent range) const {
  if (apart_from(range)) return {};
  const Length end = from + length;
  const Length first = std::clamp(view.position_beyond(range.offset), from, end);
  const Length last = std::clamp(view.position_beyond(range.end()), from, end);
  return {view, first, last - first};
}

void ViewPart::encode(std::vector<int64_t>& numbers) const {
  const auto begin = [&](Length first) {
    numbers.push_back(static_cast<int64_t>(first.value));
    numbers.push_back(static_cast<int64_t>(length.value));
  };
  if (empty()) return begin(from);
  const size_t before = numbers.size();
  // Whichever of the two is long, no more is seen of it than a few times the other.
  for (size_t most = kShort;; most *= 4) {
    begin(from);
    const bool fits = view.encode(numbers, most);
    const size_t words = numbers.size() - before;
    if (fits && words <= kShort) return;
    const auto pieces = view.slice(from, length, (fits ? words : most) / 4);
    auto map = pieces ? map_of(*pieces) : Result<TiledMap>(Error(EFBIG, "too many pieces"));
    if (fits && !map) return;
    numbers.resize(before);
    if (!map) continue;
    begin(Length());
    map->encode(numbers);
    return;
  }
}

Result<ViewPart> ViewPart::decode(std::span<const int64_t>& numbers) {
  if (numbers.size() < 2 || numbers[0] < 0 || numbers[1] < 0)
    return Error(EPROTO, "the description of an access is garbled");
  ViewPart part;
  part.from = Length(static_cast<uint64_t>(numbers[0]));
  part.length = Length(static_cast<uint64_t>(numbers[1]));
  numbers = numbers.subspan(2);
  if (part.empty()) return ViewPart();
  auto view = TiledMap::decode(numbers);
  if (!view) return view.error();
  if (!view->monotone() || part.from > view->total() || part.length > view->total() - part.from)
    return Error(EPROTO, "the description of an access is garbled");
  part.view = std::move(*view);
  return part;
}

}  // namespace forebay::plan
