#include "plan/interval_tree.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/assert.h"

namespace forebay::plan {
namespace {

// SplitMix64: scatters a counter over all 64 bits.
uint64_t scattered(uint64_t n) {
  n = (n + 1) * 0x9e3779b97f4a7c15;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
  n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
  return n ^ (n >> 31);
}

}  // namespace

bool IntervalTree::Node::before(const Node& o) const {
  const auto key = [](const Node& n) { return std::tuple(n.range.offset, n.range.end(), n.id); };
  return key(*this) < key(o);
}

void IntervalTree::Node::update() {
  reach = range.end();
  if (left) reach = std::max(reach, left->reach);
  if (right) reach = std::max(reach, right->reach);
}

IntervalTree::IntervalTree(IntervalTree&& other) noexcept {
  *this = std::move(other);
}

IntervalTree& IntervalTree::operator=(IntervalTree&& other) noexcept {
  root_ = std::move(other.root_);
  size_ = std::exchange(other.size_, 0);
  sequence_ = other.sequence_;
  return *this;
}

void IntervalTree::insert(Extent range, Id id) {
  FOREBAY_ASSERT(!range.empty());
  auto node = std::make_unique<Node>(Node{range, id, scattered(sequence_++), range.end()});
  root_ = insert(std::move(root_), std::move(node));
  ++size_;
}

void IntervalTree::erase(Extent range, Id id) {
  root_ = erase(std::move(root_), Node{range, id, 0, range.end()});
  --size_;
}

// What comes before `at`, and what does not.
std::pair<IntervalTree::Tree, IntervalTree::Tree> IntervalTree::split(Tree tree, const Node& at) {
  if (!tree) return {};
  if (tree->before(at)) {
    auto [low, high] = split(std::move(tree->right), at);
    tree->right = std::move(low);
    tree->update();
    return {std::move(tree), std::move(high)};
  }
  auto [low, high] = split(std::move(tree->left), at);
  tree->left = std::move(high);
  tree->update();
  return {std::move(low), std::move(tree)};
}

IntervalTree::Tree IntervalTree::join(Tree low, Tree high) {
  if (!low) return high;
  if (!high) return low;
  if (low->priority >= high->priority) {
    low->right = join(std::move(low->right), std::move(high));
    low->update();
    return low;
  }
  high->left = join(std::move(low), std::move(high->left));
  high->update();
  return high;
}

IntervalTree::Tree IntervalTree::insert(Tree tree, Tree node) {
  if (!tree || node->priority > tree->priority) {
    std::tie(node->left, node->right) = split(std::move(tree), *node);
    node->update();
    return node;
  }
  Tree& side = node->before(*tree) ? tree->left : tree->right;
  side = insert(std::move(side), std::move(node));
  tree->update();
  return tree;
}

IntervalTree::Tree IntervalTree::erase(Tree tree, const Node& which) {
  FOREBAY_ASSERT(tree, "no such range in the tree");
  if (which.before(*tree)) {
    tree->left = erase(std::move(tree->left), which);
  } else if (tree->before(which)) {
    tree->right = erase(std::move(tree->right), which);
  } else {
    return join(std::move(tree->left), std::move(tree->right));
  }
  tree->update();
  return tree;
}

}  // namespace forebay::plan
