#include "plan/tiled_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <unordered_map>

#include "plan/type_node.h"

namespace forebay::plan {
namespace {

using Kind = TypeNode::Kind;

constexpr Wide kEnd = kMaxOffset;

struct Range {
  int64_t low = INT64_MAX, high = INT64_MIN;
  void add(int64_t from, int64_t to) {
    low = std::min(low, from);
    high = std::max(high, to);
  }
};

// Adds the repetitions or entries [first, last) of a node, whole.
void add_whole(const TypeNode& node, int64_t at, uint64_t first, uint64_t last, Range& range) {
  if (first >= last) return;
  if (node.kind == Kind::kLoop) {
    for (const uint64_t i : {first, last - 1}) {
      const int64_t place = at + static_cast<int64_t>(i) * node.stride;
      range.add(place + node.child->low, place + node.child->high);
    }
    return;
  }
  for (uint64_t i = first; i < last; ++i) {
    const TypeNode::Entry& e = node.entries[i];
    const int64_t low = e.child ? e.child->low : 0;
    const int64_t high = e.child ? e.child->high : static_cast<int64_t>(node.entry_size(i));
    range.add(at + e.at + low, at + e.at + high);
    if (node.monotone && i + 1 < last) i = last - 2;  // what lies between lies between
  }
}

// A child of a node: which bytes of its parent's stream it is, and where it lies.
struct Child {
  const TypeNode* node;  // null: a run
  uint64_t start, size;
  int64_t at;
};

Child child_of(const TypeNode& node, int64_t at, uint64_t index) {
  if (node.kind == Kind::kLoop) {
    return {node.child.get(), index * node.child->size, node.child->size,
            at + static_cast<int64_t>(index) * node.stride};
  }
  const TypeNode::Entry& e = node.entries[index];
  return {e.child, e.start, node.entry_size(index), at + e.at};
}

uint64_t index_of(const TypeNode& node, uint64_t place) {
  return node.kind == Kind::kLoop ? place / node.child->size : node.entry_of(place);
}

// The bytes [from, to) of a node's stream. A part that begins in the midst of a child and one that
// ends in the midst of another are looked into; so it goes down the tree at most twice.
void add_part(const TypeNode* node, int64_t at, uint64_t from, uint64_t to, Range& range) {
  while (node && node->kind != Kind::kRun) {
    if (from == 0 && to == node->size) return range.add(at + node->low, at + node->high);
    const uint64_t first = index_of(*node, from), last = index_of(*node, to - 1);
    const Child a = child_of(*node, at, first), b = child_of(*node, at, last);
    if (first != last) {
      add_part(a.node, a.at, from - a.start, a.size, range);
      add_whole(*node, at, first + 1, last, range);
      from = b.start;
    }
    from -= b.start;
    to -= b.start;
    node = b.node;
    at = b.at;
  }
  range.add(at + static_cast<int64_t>(from), at + static_cast<int64_t>(to));
}

// The last child that has a byte below `limit` (from the node's first byte on); there is one.
uint64_t last_below(const TypeNode& node, Wide limit) {
  if (node.kind == Kind::kLoop) {
    if (node.stride <= 0) return node.count - 1;
    return static_cast<uint64_t>(
        std::min<Wide>(node.count - 1, (limit - 1 - node.child->low) / node.stride));
  }
  const auto below = [&](const TypeNode::Entry& e) {
    return Wide(e.at) + (e.child ? e.child->low : 0) < limit;
  };
  const auto& entries = node.entries;
  if (node.monotone) {
    const auto after = std::partition_point(entries.begin(), entries.end(), below);
    return static_cast<uint64_t>(after - entries.begin()) - 1;
  }
  const auto found = std::find_if(entries.rbegin(), entries.rend(), below);
  return static_cast<uint64_t>(entries.rend() - found) - 1;
}

// Pairs of nodes that were compared before are not again, or types that use each other twice at
// every level would double with every level.
class Comparison {
 public:
  bool same(const TypeNode* a, const TypeNode* b) {
    if (a == b) return true;
    if (!a || !b || a->kind != b->kind || a->size != b->size || a->pieces != b->pieces ||
        a->low != b->low || a->high != b->high || a->count != b->count || a->stride != b->stride ||
        a->entries.size() != b->entries.size())
      return false;
    if (const auto known = same_.find(a); known != same_.end() && known->second == b) return true;
    for (size_t i = 0; i < a->entries.size(); ++i) {
      const TypeNode::Entry &x = a->entries[i], &y = b->entries[i];
      if (x.at != y.at || x.start != y.start || !same(x.child, y.child)) return false;
    }
    if (!same(a->child.get(), b->child.get())) return false;
    same_[a] = b;
    return true;
  }

 private:
  std::unordered_map<const TypeNode*, const TypeNode*> same_;
};

}  // namespace

bool TiledMap::same(const TiledMap& other) const noexcept try {
  return at_ == other.at_ && Comparison().same(root_.get(), other.root_.get());
} catch (const std::bad_alloc&) {
  return false;
}

TiledMap::TiledMap(TypeTree root, int64_t at)
    : root_(std::move(root)), at_(at), total_(root_ ? root_->size : 0) {}

Result<TiledMap> TiledMap::view(Offset displacement, const TypeMap& filetype) {
  if (filetype.size() == 0) return TiledMap();
  const Wide low = Wide(displacement.value) + filetype.true_lb();
  const Wide high = Wide(displacement.value) + filetype.true_ub();
  if (low < 0 || high > kEnd) {
    return Error(EINVAL, fmt::format("a view with bytes from {} to {} after its displacement of "
                                     "{}, which lie outside of any file",
                                     filetype.true_lb(), filetype.true_ub(), displacement.value));
  }
  if (filetype.extent() <= 0) {
    return Error(EINVAL, fmt::format("a file type with an extent of {}, which cannot be tiled",
                                     filetype.extent()));
  }
  const Wide tiles = std::min((kEnd - high) / filetype.extent() + 1, kEnd / filetype.size());
  Result<TypeTree> root =
      make_loop(filetype.tree_, static_cast<uint64_t>(tiles), filetype.extent());
  if (!root) return std::move(root).error().at("view");
  return TiledMap(std::move(*root), static_cast<int64_t>(displacement.value) + filetype.at_);
}

Result<TiledMap> TiledMap::buffer(const void* address, uint64_t count, const TypeMap& type) {
  Result<TypeTree> root = make_loop(type.tree_, count, type.extent());
  if (!root) return std::move(root).error().at("buffer");
  if (!*root) return TiledMap();
  const Wide at = Wide(reinterpret_cast<uintptr_t>(address)) + type.at_;
  if (at + (*root)->low < 0 || at + (*root)->high > kEnd) {
    return Error(EINVAL, "a buffer whose datatype leads outside of memory");
  }
  return TiledMap(std::move(*root), static_cast<int64_t>(at));
}

Result<TiledMap> TiledMap::once(Offset displacement, const TypeMap& type) {
  if (type.size() == 0) return TiledMap();
  const Wide at = Wide(displacement.value);
  if (at + type.true_lb() < 0 || at + type.true_ub() > kEnd)
    return Error(EINVAL, "bytes that lie outside of any file");
  return TiledMap(type.tree_, static_cast<int64_t>(at) + type.at_);
}

uint64_t TiledMap::mean_piece() const {
  return root_ ? root_->size / root_->pieces : 0;
}

bool TiledMap::contiguous() const {
  return !root_ || root_->kind == Kind::kRun;
}

bool TiledMap::monotone() const {
  return !root_ || root_->monotone;
}

Offset TiledMap::offset_of(Length position) const {
  FOREBAY_ASSERT(position < total_);
  const TypeNode* node = root_.get();
  int64_t at = at_;
  uint64_t place = position.value;
  while (node && node->kind != Kind::kRun) {
    const Child child = child_of(*node, at, index_of(*node, place));
    place -= child.start;
    at = child.at;
    node = child.node;
  }
  return Offset(static_cast<uint64_t>(at) + place);
}

Length TiledMap::position_beyond(Offset offset) const {
  if (!root_ || Wide(at_) + root_->low >= Wide(offset.value)) return Length(0);
  const TypeNode* node = root_.get();
  uint64_t size = root_->size, position = 0;
  Wide limit = Wide(offset.value) - at_;
  while (node && node->kind != Kind::kRun) {
    const Child child = child_of(*node, 0, last_below(*node, limit));
    limit -= child.at;
    position += child.start;
    size = child.size;
    node = child.node;
  }
  return Length(position + static_cast<uint64_t>(std::min<Wide>(size, limit)));
}

Extent TiledMap::bounds(Length from, Length length) const {
  FOREBAY_ASSERT(from <= total_ && length <= total_ - from);
  if (!length) return {};
  Range range;
  add_part(root_.get(), at_, from.value, (from + length).value, range);
  return {Offset(static_cast<uint64_t>(range.low)),
          Length(static_cast<uint64_t>(range.high - range.low))};
}

std::optional<Extents> TiledMap::slice(Length from, Length length, size_t most_blocks) const {
  Extents part = TiledCursor(*this, from, length).next(length, most_blocks);
  if (part.total() != length) return std::nullopt;
  return part;
}

}  // namespace forebay::plan
