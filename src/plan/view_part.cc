#include "plan/view_part.h"

#include "plan/coverage.h"

namespace forebay::plan {
namespace {

// Of a description that is not worth shortening.
constexpr size_t kShort = 32;

// False: they are none that a type can describe.
bool add(const Extents& pieces, std::vector<int64_t>& numbers) {
  if (pieces.loops().empty()) return TiledMap::encode_list(pieces.blocks(), numbers), true;
  std::vector<TypeMap::Block> blocks;
  blocks.reserve(pieces.blocks().size());
  for (const Extent& e : pieces.blocks())
    blocks.push_back({static_cast<int64_t>(e.offset.value), static_cast<int64_t>(e.length.value)});
  auto byte = TypeMap::bytes(1);
  auto map = TypeMap::indexed(blocks, *byte);
  for (size_t i = pieces.loops().size(); map && i-- > 0;) {
    const Stride& loop = pieces.loops()[i];
    map = TypeMap::vector(static_cast<int64_t>(loop.count), 1, loop.stride, *map);
  }
  const auto once = map ? TiledMap::once(Offset(0), *map) : Result<TiledMap>(map.error());
  return once && once->encode(numbers);
}

}  // namespace

ViewPart ViewPart::within(Extent range) const {
  if (apart_from(range)) return {};
  const Length end = from + length;
  const Length first = std::clamp(view.position_beyond(range.offset), from, end);
  const Length last = std::clamp(view.position_beyond(range.end()), from, end);
  return {view, first, last - first};
}

void ViewPart::encode_in(const TiledMap& realm, std::vector<int64_t>& numbers) const {
  const ViewPart near = within(realm.bounds(Length(0), realm.total()));
  if (!near.empty()) near.encode_part(realm.contiguous() ? nullptr : &realm, numbers, SIZE_MAX);
}

// The shorter of view and pieces; whichever is long, no more is seen of it than a few times the
// other. In a realm, if there is one: then its pieces are listed one by one.
bool ViewPart::encode_part(const TiledMap* realm, std::vector<int64_t>& numbers,
                           size_t most_of_all) const {
  const size_t before = numbers.size();
  const auto begin = [&](Length first, Length bytes) {
    numbers.push_back(static_cast<int64_t>(first.value));
    numbers.push_back(static_cast<int64_t>(bytes.value));
  };
  begin(from, length);
  bool done = empty() || view.encode(numbers, kShort);
  for (size_t most = kShort; !done; most *= 4) {
    numbers.resize(before);
    const auto pieces =
        realm ? pieces_in(ranges_of(*realm), *this, most / 2) : view.slice(from, length, most / 2);
    if (pieces && pieces->empty()) return true;  // nothing in the realm
    if (pieces) begin(Length(), pieces->total());
    if (!pieces || !add(*pieces, numbers)) {
      numbers.resize(before);
      begin(from, length);
      done = view.encode(numbers, most);
      if (!done && most >= most_of_all) break;
      continue;
    }
    const auto other = static_cast<ptrdiff_t>(numbers.size());
    begin(from, length);
    done = true;
    if (view.encode(numbers, static_cast<size_t>(other) - before))
      numbers.erase(numbers.begin() + static_cast<ptrdiff_t>(before), numbers.begin() + other);
    else
      numbers.resize(static_cast<size_t>(other));
  }
  done = done && numbers.size() - before <= most_of_all;
  if (!done) numbers.resize(before);
  return done;
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
