// IntervalTree: finds the ranges that overlap a given one among many.
//
// A treap ordered by (offset, end, id), each node knowing the largest end below it. Priorities come
// from a fixed sequence, so the shape depends on nothing but the calls made. A value: no threads.
//
// Invariants:
//  1. a parent's priority is not below its children's, so the depth is O(log n) whatever the order
//     of insertion;
//  2. every node's `reach` is the largest end of its subtree, so that visit() looks at
//     O(log n + found) nodes.
#pragma once

#include <cstdint>
#include <memory>

#include "core/extent_set.h"

namespace forebay::plan {

class IntervalTree {
 public:
  using Id = uint64_t;

  IntervalTree() = default;
  IntervalTree(IntervalTree&& other) noexcept;
  IntervalTree& operator=(IntervalTree&& other) noexcept;

  // The same range may be there many times under different ids. It must not be empty.
  void insert(Extent range, Id id);
  void erase(Extent range, Id id);  // must be there (asserted)

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Calls fn(Extent, Id) for every range that shares a byte with `range`, by rising offset. Returns
  // how many nodes it looked at. fn must not change the tree.
  template <class Fn>
  size_t visit(Extent range, Fn&& fn) const {
    return range.empty() ? 0 : visit(root_.get(), range, fn);
  }

 private:
  struct Node;
  using Tree = std::unique_ptr<Node>;
  struct Node {
    Extent range;
    Id id;
    uint64_t priority;
    Offset reach;
    Tree left{}, right{};

    bool before(const Node& o) const;
    void update();
  };

  template <class Fn>
  static size_t visit(const Node* node, Extent range, Fn& fn) {
    if (!node || node->reach <= range.offset) return 0;
    size_t looked = 1 + visit(node->left.get(), range, fn);
    if (node->range.overlaps(range)) fn(node->range, node->id);
    if (node->range.offset < range.end()) looked += visit(node->right.get(), range, fn);
    return looked;
  }

  static std::pair<Tree, Tree> split(Tree tree, const Node& at);
  static Tree join(Tree low, Tree high);
  static Tree insert(Tree tree, Tree node);
  static Tree erase(Tree tree, const Node& which);

  Tree root_;
  size_t size_ = 0;
  uint64_t sequence_ = 0;  // of priorities
};

}  // namespace forebay::plan
