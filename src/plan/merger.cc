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
    take_around({first->offset, first->slot}, limits, out);
  }

  void take_around(Which which, const RunLimits& limits, std::vector<Item>& out) override {
    out.clear();
    const auto found = std::ranges::find(items_, which.slot, &Item::slot);
    FOREBAY_ASSERT(found != items_.end());
    Run down(half(limits));
    Item first = *found;
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
    if (leaves_.empty()) leaves_.emplace(key_of(item), std::make_unique<Leaf>());
    auto leaf = leaf_for(key_of(item));
    if (leaf->second->count == kLeaf) leaf = split(leaf, key_of(item));
    leaf->second->add(item);
  }
  size_t size() const override { return size_; }

  void take(Offset from, const RunLimits& limits, std::vector<Item>& out) override {
    FOREBAY_ASSERT(size_ > 0);
    Place place = at_or_after({from.value, 0});
    if (place.leaf == leaves_.end()) place = {leaves_.begin(), 0};
    take_up(lowest_of_run(place, limits), limits, out);
  }

  void take_around(Which which, const RunLimits& limits, std::vector<Item>& out) override {
    const Place place = at_or_after({which.offset.value, which.slot});
    FOREBAY_ASSERT(place.leaf != leaves_.end() && place.item().slot == which.slot);
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
    Item* at_or_after(Key key) {
      return std::lower_bound(begin(), end(), key,
                              [](const Item& a, Key b) { return key_of(a) < b; });
    }
    void add(const Item& item) {
      Item* const place = at_or_after(key_of(item));
      std::move_backward(place, end(), end() + 1);
      *place = item;
      ++count;
    }
    void remove(uint32_t first, uint32_t last) {
      std::move(begin() + last, end(), begin() + first);
      count -= last - first;
    }
  };
  // Apart from the leaves, so that a search goes through little memory.
  using Leaves = std::map<Key, std::unique_ptr<Leaf>>;

  struct Place {
    Leaves::iterator leaf;
    uint32_t index;
    const Item& item() const { return leaf->second->items[index]; }
  };

  // Where an item belongs. A lower one than all before makes the first leaf's key lower.
  Leaves::iterator leaf_for(Key key) {
    auto leaf = leaves_.upper_bound(key);
    if (leaf != leaves_.begin()) return std::prev(leaf);
    auto node = leaves_.extract(leaf);
    node.key() = key;
    return leaves_.insert(leaves_.begin(), std::move(node));
  }

  // Makes two of a full leaf; returns the one in which the key belongs.
  Leaves::iterator split(Leaves::iterator leaf, Key key) {
    Leaf& low = *leaf->second;
    constexpr uint32_t kHalf = kLeaf / 2;
    auto made = std::make_unique<Leaf>();
    std::move(low.begin() + kHalf, low.end(), made->begin());
    made->count = low.count - kHalf;
    low.count = kHalf;
    const Key first = key_of(*made->begin());
    const auto high = leaves_.emplace_hint(std::next(leaf), first, std::move(made));
    return key < first ? leaf : high;
  }

  Place at_or_after(Key key) {
    auto leaf = leaves_.upper_bound(key);
    if (leaf != leaves_.begin()) {
      --leaf;
      Leaf& found = *leaf->second;
      const auto index = static_cast<uint32_t>(found.at_or_after(key) - found.begin());
      if (index < found.count) return {leaf, index};
      ++leaf;
    }
    return {leaf, 0};
  }

  bool step_down(Place& place) {
    if (place.index > 0) return --place.index, true;
    if (place.leaf == leaves_.begin()) return false;
    --place.leaf;
    place.index = place.leaf->second->count - 1;
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
      Leaf& leaf = *place.leaf->second;
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
