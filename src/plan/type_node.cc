#include "plan/type_node.h"

#include <algorithm>

namespace forebay::plan {
namespace {

constexpr Wide kMost = INT64_MAX;  // of any size or bound

// Lists of so few entries are copied into the list that holds them: it is the depth of a tree that
// costs when it is walked.
constexpr size_t kSmallList = 8;

bool equal(const TypeNode* a, const TypeNode* b) {
  for (; a != b; a = a->child.get(), b = b->child.get()) {
    if (a->kind != b->kind || a->size != b->size) return false;
    if (a->kind == TypeNode::Kind::kRun) return true;
    if (a->kind == TypeNode::Kind::kList) return false;  // to compare lists may cost too much
    if (a->count != b->count || a->stride != b->stride) return false;
  }
  return true;
}

// A child that stands in a list; a run there has no node.
bool is_child(const TypeNode* child, uint64_t size, const TypeNode* other) {
  if (child) return equal(child, other);
  return other->kind == TypeNode::Kind::kRun && other->size == size;
}

// Moves the entries so that the first is at 0, and computes what is known of them together.
Result<void> measure_list(TypeNode& list, int64_t first) {
  Wide low = kMost, high = -kMost, end = -kMost, last = -kMost;
  list.pieces = 0;
  for (size_t i = 0; i < list.entries.size(); ++i) {
    TypeNode::Entry& e = list.entries[i];
    const Wide at = Wide(e.at) - first;
    const bool apart = at >= end, after = at >= last;
    end = at + (e.child ? Wide(e.child->high) : Wide(list.entry_size(i)));
    last = at + (e.child ? e.child->last : 0);
    list.monotone &= apart && (!e.child || e.child->monotone);
    list.ordered &= after && (!e.child || e.child->ordered);
    list.pieces += e.child ? e.child->pieces : 1;
    low = std::min(low, at + (e.child ? e.child->low : 0));
    high = std::max(high, end);
    if (!fits(low) || !fits(high)) return too_large();
    e.at = static_cast<int64_t>(at);
  }
  list.low = static_cast<int64_t>(low);
  list.high = static_cast<int64_t>(high);
  list.last = static_cast<int64_t>(last);
  return {};
}

}  // namespace

Error too_large() {
  return Error(EOVERFLOW, "the datatype's bytes or bounds are beyond what 63 bits can hold");
}

size_t TypeNode::entry_of(uint64_t at) const {
  const auto after = std::upper_bound(entries.begin(), entries.end(), at,
                                      [](uint64_t v, const Entry& e) { return v < e.start; });
  return static_cast<size_t>(after - entries.begin()) - 1;
}

TypeTree make_run(uint64_t length) {
  if (length == 0) return nullptr;
  auto run = std::make_shared<TypeNode>();
  run->size = length;
  run->high = static_cast<int64_t>(length);
  return run;
}

Result<TypeTree> make_loop(TypeTree child, uint64_t count, int64_t stride) {
  if (!child || count == 0) return TypeTree();
  if (count == 1) return child;
  const Wide span = Wide(count - 1) * stride, size = Wide(count) * child->size;
  const Wide low = std::min<Wide>(span, 0) + child->low;
  const Wide high = std::max<Wide>(span, 0) + child->high;
  if (!fits(low) || !fits(high) || size > kMost) return too_large();
  if (child->kind == TypeNode::Kind::kRun && Wide(child->size) == stride) {
    return make_run(static_cast<uint64_t>(size));
  }
  if (child->kind == TypeNode::Kind::kLoop && Wide(child->count) * child->stride == stride) {
    return make_loop(child->child, child->count * count, child->stride);
  }
  auto loop = std::make_shared<TypeNode>();
  loop->kind = TypeNode::Kind::kLoop;
  loop->monotone = child->monotone && stride >= child->high;
  loop->ordered = child->ordered && stride >= child->last;
  loop->size = static_cast<uint64_t>(size);
  loop->pieces = count * child->pieces;
  loop->low = static_cast<int64_t>(low);
  loop->high = static_cast<int64_t>(high);
  loop->last = static_cast<int64_t>(span + child->last);
  loop->count = count;
  loop->stride = stride;
  loop->child = std::move(child);
  return TypeTree(std::move(loop));
}

Result<void> ListBuilder::add(Wide at, const TypeTree& child) {
  if (!child) return {};
  if (child->kind == TypeNode::Kind::kRun) return add_run(at, child->size);
  if (!fits(at + child->low) || !fits(at + child->high)) return too_large();
  return append(at, child->size, child);
}

Result<void> ListBuilder::add_run(Wide at, Wide length) {
  if (length == 0) return {};
  if (!fits(at) || !fits(length) || !fits(at + length)) return too_large();
  return append(at, static_cast<uint64_t>(length), nullptr);
}

Result<void> ListBuilder::append(Wide at, uint64_t size, const TypeTree& child) {
  if (!fits(Wide(size_) + size)) return too_large();
  const int64_t place = static_cast<int64_t>(at);
  bool extended = false;
  if (!entries_.empty() && !child && !entries_.back().child) {
    extended = at - entries_.back().at == Wide(size_ - entries_.back().start);
  } else if (!entries_.empty()) {
    const Result<bool> more = extend_last_loop(place, size, child);
    if (!more) return more.error();
    extended = *more;
  }
  if (!extended) {
    entries_.push_back({place, size_, child.get()});
    grown_ = false;
    if (child && (children_.empty() || children_.back() != child)) children_.push_back(child);
  }
  size_ += size;
  return {};
}

// Is it one more repetition, or several, of the entry before it?
Result<bool> ListBuilder::extend_last_loop(int64_t at, uint64_t size, const TypeTree& child) {
  Entry& last = entries_.back();
  const uint64_t last_size = size_ - last.start;
  const Wide apart = Wide(at) - last.at;
  const auto loop = [](const TypeNode* n) { return n && n->kind == TypeNode::Kind::kLoop; };
  const TypeNode* a = last.child;
  const TypeNode* b = child.get();
  Result<TypeTree> longer = TypeTree();
  if (loop(a) && apart == Wide(a->count) * a->stride) {
    if (is_child(b, size, a->child.get())) {
      longer = make_loop(a->child, a->count + 1, a->stride);
    } else if (loop(b) && a->stride == b->stride && equal(a->child.get(), b->child.get())) {
      longer = make_loop(a->child, a->count + b->count, a->stride);
    }
  } else if (loop(b) && apart == b->stride && is_child(a, last_size, b->child.get())) {
    longer = make_loop(b->child, b->count + 1, b->stride);
  }
  if (!longer) return std::move(longer).error();
  if (!*longer) return false;
  if (grown_) {
    children_.back() = std::move(*longer);  // nobody but this entry knows the shorter one
  } else {
    children_.push_back(std::move(*longer));
  }
  grown_ = true;
  last.child = children_.back().get();
  return true;
}

uint64_t ListBuilder::entry_size(size_t i) const {
  return (i + 1 < entries_.size() ? entries_[i + 1].start : size_) - entries_[i].start;
}

bool ListBuilder::equal_children(size_t a, size_t b) const {
  const TypeNode *x = entries_[a].child, *y = entries_[b].child;
  if (!x || !y) return x == y && entry_size(a) == entry_size(b);
  return equal(x, y);
}

bool ListBuilder::regular() const {
  const Wide apart = Wide(entries_[1].at) - entries_[0].at;
  if (!fits(apart)) return false;
  for (size_t i = 1; i < entries_.size(); ++i) {
    if (Wide(entries_[i].at) - entries_[i - 1].at != apart || !equal_children(0, i)) return false;
  }
  return true;
}

TypeTree ListBuilder::child_of(size_t i) const {
  if (!entries_[i].child) return make_run(entry_size(i));
  return *std::find_if(children_.begin(), children_.end(),
                       [&](const TypeTree& t) { return t.get() == entries_[i].child; });
}

bool ListBuilder::has_small_lists() const {
  return std::any_of(children_.begin(), children_.end(), [](const TypeTree& t) {
    return t->kind == TypeNode::Kind::kList && t->entries.size() <= kSmallList;
  });
}

Result<ListBuilder> ListBuilder::flattened() const {
  ListBuilder flat;
  size_t kept = 0;  // the current child's place in children_
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    Result<void> ok;
    if (!e.child) {
      ok = flat.add_run(e.at, entry_size(i));
    } else {
      while (children_[kept].get() != e.child) ++kept;
      const TypeTree& child = children_[kept];
      const bool small =
          child->kind == TypeNode::Kind::kList && child->entries.size() <= kSmallList;
      if (!small) ok = flat.add(e.at, child);
      for (size_t k = 0; small && ok && k < child->entries.size(); ++k) {
        const Entry& inner = child->entries[k];
        // It shares its parent's ownership.
        const TypeTree shared(child, inner.child);
        const Wide at = Wide(e.at) + inner.at;
        ok = inner.child ? flat.add(at, shared) : flat.add_run(at, child->entry_size(k));
      }
    }
    if (!ok) return std::move(ok).error();
  }
  return flat;
}

Result<ListBuilder::Made> ListBuilder::finish() && {
  if (entries_.size() > 1 && !regular() && has_small_lists()) {
    Result<ListBuilder> flat = flattened();
    if (!flat) return std::move(flat).error();
    return std::move(*flat).finish_list();
  }
  return std::move(*this).finish_list();
}

Result<ListBuilder::Made> ListBuilder::finish_list() && {
  if (entries_.empty()) return Made{};
  const int64_t first = entries_[0].at;
  if (entries_.size() == 1) return Made{child_of(0), first};
  if (regular()) {
    Result<TypeTree> loop = make_loop(child_of(0), entries_.size(), entries_[1].at - first);
    if (!loop) return std::move(loop).error();
    return Made{std::move(*loop), first};
  }
  auto list = std::make_shared<TypeNode>();
  list->kind = TypeNode::Kind::kList;
  list->size = size_;
  entries_.shrink_to_fit();
  list->entries = std::move(entries_);
  list->children = std::move(children_);
  if (auto ok = measure_list(*list, first); !ok) return std::move(ok).error();
  return Made{TypeTree(std::move(list)), first};
}

}  // namespace forebay::plan
