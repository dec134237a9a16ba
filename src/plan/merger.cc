#include "plan/merger.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/assert.h"

namespace forebay::plan {

bool Run::take(const Item& item) {
  if (requests_ == 0) {
    begin_ = item.offset;
    end_ = item.end;
    open_ = item.pieces != 0;
  } else {
    const bool joins = open_ && item.pieces != 0 && item.offset <= end_ && begin_ <= item.end;
    if (!joins || bytes_ + item.bytes > limits_.bytes || pieces_ + item.pieces > limits_.pieces ||
        requests_ >= limits_.requests) {
      return false;
    }
    begin_ = std::min(begin_, item.offset);
    end_ = std::max(end_, item.end);
  }
  bytes_ += item.bytes;
  pieces_ += item.pieces;
  ++requests_;
  return true;
}

namespace {

// How far below a request its run may begin: as much room is left above it.
RunLimits half(const RunLimits& l) {
  return {l.bytes / 2, l.pieces / 2, std::max<uint64_t>(l.requests / 2, 1)};
}

// A vector without order, searched from end to end for every request that is taken. Cheap for a
// few.
class Brute final : public Merger {
 public:
  void insert(const Item& item) override { items_.push_back(item); }
  size_t size() const override { return items_.size(); }

  void take(Offset from, const RunLimits& limits, std::vector<Item>& out) override {
    const Item* first = lowest([&](const Item& i) { return i.offset >= from; });
    if (!first) first = lowest([](const Item&) { return true; });
    FOREBAY_ASSERT(first);
    take_around(Item(*first), limits, out);
  }

  void take_around(const Item& item, const RunLimits& limits, std::vector<Item>& out) override {
    out.clear();
    Run down(half(limits));
    Item first = item;
    down.take(first);
    while (const Item* below = highest_below(first)) {
      if (!down.take(*below)) break;
      first = *below;
    }
    take_up(first, limits, out);
  }

 private:
  template <class Pred>
  const Item* lowest(Pred&& pred) const {
    const Item* best = nullptr;
    for (const Item& item : items_) {
      if (pred(item) && (!best || item.before(*best))) best = &item;
    }
    return best;
  }

  const Item* highest_below(const Item& item) const {
    const Item* best = nullptr;
    for (const Item& i : items_) {
      if (i.before(item) && (!best || best->before(i))) best = &i;
    }
    return best;
  }

  void take_up(Item item, const RunLimits& limits, std::vector<Item>& out) {
    Run run(limits);
    while (run.take(item)) {
      out.push_back(item);
      remove(item);
      const Item* next = lowest([&](const Item& i) { return item.before(i); });
      if (!next) return;
      item = *next;
    }
  }

  void remove(const Item& item) {
    const auto found = std::ranges::find(items_, item.slot, &Item::slot);
    FOREBAY_ASSERT(found != items_.end());
    *found = items_.back();
    items_.pop_back();
  }

  std::vector<Item> items_;
};

// An ordered tree with the requests in leaves of some tens: O(log n) to insert and to find, and
// neighbours lie beside each other in memory, which with a million pending is worth more than the
// depth of the tree.
//
// Order alone is enough where the paper has an interval tree: a run grows upward from its lowest
// request, so what touches it is always the next one in order. What overlaps what was already
// found, and settled, before (plan/reservations.h).
//
// Invariants: no leaf is empty; a leaf's key is at or before its first item and after the last item
// of the leaf before it.
class Tree final : public Merger {
 public:
  void insert(const Item& item) override {
    ++size_;
    if (leaves_.empty()) return leaves_[key_of(item)].add(item);
    auto leaf = leaf_for(item);
    if (leaf->second.count == kLeaf) leaf = split(leaf, item);
    leaf->second.add(item);
  }
  size_t size() const override { return size_; }

  void take(Offset from, const RunLimits& limits, std::vector<Item>& out) override {
    FOREBAY_ASSERT(size_ > 0);
    Item lowest;
    lowest.offset = from;
    Place place = at_or_after(lowest);
    if (place.leaf == leaves_.end()) place = {leaves_.begin(), 0};
    take_up(lowest_of_run(place, limits), limits, out);
  }

  void take_around(const Item& item, const RunLimits& limits, std::vector<Item>& out) override {
    const Place place = at_or_after(item);
    FOREBAY_ASSERT(place.leaf != leaves_.end() && place.item().slot == item.slot);
    take_up(lowest_of_run(place, limits), limits, out);
  }

 private:
  static constexpr uint32_t kLeaf = 32;
  using Key = std::pair<uint64_t, uint32_t>;  // offset, slot
  static Key key_of(const Item& item) { return {item.offset.value, item.slot}; }

  struct Leaf {
    uint32_t count = 0;
    std::array<Item, kLeaf> items;

    Item* begin() { return items.data(); }
    Item* end() { return items.data() + count; }
    Item* at_or_after(const Item& item) {
      return std::lower_bound(begin(), end(), item,
                              [](const Item& a, const Item& b) { return a.before(b); });
    }
    void add(const Item& item) {
      Item* const place = at_or_after(item);
      std::move_backward(place, end(), end() + 1);
      *place = item;
      ++count;
    }
    void remove(uint32_t first, uint32_t last) {
      std::move(begin() + last, end(), begin() + first);
      count -= last - first;
    }
  };
  using Leaves = std::map<Key, Leaf>;

  struct Place {
    Leaves::iterator leaf;
    uint32_t index;
    const Item& item() const { return leaf->second.items[index]; }
  };

  // Where an item belongs. A lower one than all before makes the first leaf's key lower.
  Leaves::iterator leaf_for(const Item& item) {
    auto leaf = leaves_.upper_bound(key_of(item));
    if (leaf != leaves_.begin()) return std::prev(leaf);
    auto node = leaves_.extract(leaf);
    node.key() = key_of(item);
    return leaves_.insert(leaves_.begin(), std::move(node));
  }

  // Makes two of a full leaf; returns the one in which the item belongs.
  Leaves::iterator split(Leaves::iterator leaf, const Item& item) {
    Leaf& low = leaf->second;
    const uint32_t half = kLeaf / 2;
    const auto high = leaves_.emplace_hint(std::next(leaf), key_of(low.items[half]), Leaf{});
    std::move(low.begin() + half, low.end(), high->second.begin());
    high->second.count = low.count - half;
    low.count = half;
    return key_of(item) < high->first ? leaf : high;
  }

  Place at_or_after(const Item& item) {
    auto leaf = leaves_.upper_bound(key_of(item));
    if (leaf != leaves_.begin()) {
      --leaf;
      const auto index =
          static_cast<uint32_t>(leaf->second.at_or_after(item) - leaf->second.begin());
      if (index < leaf->second.count) return {leaf, index};
      ++leaf;
    }
    return {leaf, 0};
  }

  bool step_down(Place& place) {
    if (place.index > 0) return --place.index, true;
    if (place.leaf == leaves_.begin()) return false;
    --place.leaf;
    place.index = place.leaf->second.count - 1;
    return true;
  }

  Place lowest_of_run(Place place, const RunLimits& limits) {
    Run down(half(limits));
    down.take(place.item());
    for (Place below = place; step_down(below) && down.take(below.item());) place = below;
    return place;
  }

  // The run lies in order, so it is a range in each leaf that it meets.
  void take_up(Place place, const RunLimits& limits, std::vector<Item>& out) {
    out.clear();
    Run run(limits);
    for (bool more = true; more && place.leaf != leaves_.end(); place.index = 0) {
      Leaf& leaf = place.leaf->second;
      uint32_t last = place.index;
      while (last < leaf.count && (more = run.take(leaf.items[last]))) {
        out.push_back(leaf.items[last++]);
      }
      const auto next = std::next(place.leaf);
      if (last - place.index == leaf.count) {
        leaves_.erase(place.leaf);
      } else {
        leaf.remove(place.index, last);
      }
      place.leaf = next;
    }
    size_ -= out.size();
  }

  Leaves leaves_;
  size_t size_ = 0;
};

}  // namespace

std::unique_ptr<Merger> Merger::make(Kind kind) {
  if (kind == Kind::brute) return std::make_unique<Brute>();
  return std::make_unique<Tree>();
}

}  // namespace forebay::plan
