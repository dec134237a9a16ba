#include "mpiio/signature.h"

#include <algorithm>

namespace forebay::mpiio {

// A leaf (`count` elements of a primitive), a loop (`count` times a child), or a list of parts.
struct Signature::Node {
  uint64_t elements = 0;
  MPI_Datatype primitive = MPI_DATATYPE_NULL;  // a leaf's; of others, that of all elements
  uint64_t count = 0;
  Tree child;
  std::vector<Tree> parts;

  bool leaf() const { return !child && parts.empty(); }
  uint64_t children() const { return child ? count : parts.size(); }
  const Node* at(uint64_t index) const { return child ? child.get() : parts[index].get(); }
};

namespace {

using Node = Signature::Node;
using Tree = Signature::Tree;

Result<uint64_t> counted(bool overflow, uint64_t elements) {
  if (overflow || elements > INT64_MAX) {
    return Error(EOVERFLOW, "the datatype has more elements than 63 bits can count");
  }
  return elements;
}

Tree make_leaf(MPI_Datatype primitive, uint64_t count) {
  auto leaf = std::make_shared<Node>();
  leaf->elements = leaf->count = count;
  leaf->primitive = primitive;
  return leaf;
}

}  // namespace

Signature Signature::of(MPI_Datatype primitive) {
  return Signature(make_leaf(primitive, 1));
}

Result<Signature> Signature::repeated(uint64_t count, const Signature& of) {
  if (!of.tree_ || count == 0) return Signature();
  if (count == 1) return of;
  uint64_t product;
  const bool overflow = __builtin_mul_overflow(of.tree_->elements, count, &product);
  const Result<uint64_t> elements = counted(overflow, product);
  if (!elements) return elements.error();
  if (of.uniform() != MPI_DATATYPE_NULL) return Signature(make_leaf(of.uniform(), *elements));
  auto loop = std::make_shared<Node>();
  loop->elements = *elements;
  loop->count = count;
  loop->child = of.tree_;
  if (of.tree_->child) {
    loop->count = count * of.tree_->count;
    loop->child = of.tree_->child;
  }
  return Signature(std::move(loop));
}

Result<Signature> Signature::joined(const std::vector<Signature>& parts) {
  auto list = std::make_shared<Node>();
  for (const Signature& part : parts) {
    if (!part.tree_) continue;
    uint64_t sum;
    const bool overflow = __builtin_add_overflow(list->elements, part.tree_->elements, &sum);
    const Result<uint64_t> elements = counted(overflow, sum);
    if (!elements) return elements.error();
    list->elements = *elements;
    Tree* last = list->parts.empty() ? nullptr : &list->parts.back();
    if (last && part.tree_->leaf() && (*last)->leaf() &&
        (*last)->primitive == part.tree_->primitive) {
      *last = make_leaf((*last)->primitive, (*last)->count + part.tree_->count);
    } else {
      list->parts.push_back(part.tree_);
    }
  }
  if (list->parts.empty()) return Signature();
  if (list->parts.size() == 1) return Signature(list->parts[0]);
  return Signature(std::move(list));
}

uint64_t Signature::elements() const {
  return tree_ ? tree_->elements : 0;
}

MPI_Datatype Signature::uniform() const {
  return tree_ ? tree_->primitive : MPI_DATATYPE_NULL;
}

SignatureCursor::SignatureCursor(const Signature& signature, uint64_t count) {
  Result<Signature> all = Signature::repeated(count, signature);
  FOREBAY_ASSERT(all.has_value());  // a buffer of so many bytes is none
  root_ = all->tree_;
  if (root_) descend(root_.get());
}

void SignatureCursor::descend(const Node* node) {
  for (; !node->leaf(); node = node->at(0)) frames_.push_back({node, 0});
  leaf_ = node;
  taken_ = 0;
}

void SignatureCursor::next_leaf() {
  leaf_ = nullptr;
  while (!frames_.empty()) {
    Frame& f = frames_.back();
    if (++f.index < f.node->children()) return descend(f.node->at(f.index));
    frames_.pop_back();
  }
}

Signature::Run SignatureCursor::next(uint64_t most) {
  if (!leaf_) return {};
  const Signature::Run run{leaf_->primitive, std::min(most, leaf_->count - taken_)};
  taken_ += run.count;
  if (taken_ == leaf_->count) next_leaf();
  return run;
}

}  // namespace forebay::mpiio
