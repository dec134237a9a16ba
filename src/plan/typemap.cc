#include "plan/typemap.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/type_node.h"

namespace forebay::plan {
namespace {

Error negative(const char* what, int64_t value) {
  return Error(EINVAL, fmt::format("a datatype with a {} of {}", what, value));
}

// The bounds of several parts together.
struct Bounds {
  Wide lb = 0, ub = 0;
  bool any = false;

  void add(Wide low, Wide high) {
    lb = any ? std::min(lb, low) : low;
    ub = any ? std::max(ub, high) : high;
    any = true;
  }
  bool fit() const { return fits(lb) && fits(ub) && fits(ub - lb); }
  int64_t low() const { return static_cast<int64_t>(lb); }
  int64_t high() const { return static_cast<int64_t>(ub); }
};

}  // namespace

// Types at displacements, and their bounds together.
class TypeMap::Gather {
 public:
  void reserve(size_t entries) { list_.reserve(entries); }
  Result<void> add(int64_t at, const TypeMap& one) {
    bounds_.add(Wide(at) + one.lb_, Wide(at) + one.ub_);
    return list_.add(Wide(at) + one.at_, one.tree_);
  }
  // `count` copies of what is contiguous: no node for each block.
  Result<void> add_run(int64_t at, int64_t count, const TypeMap& of) {
    const Wide length = Wide(count) * of.size(), lb = Wide(at) + of.lb_;
    bounds_.add(lb, lb + length);
    return list_.add_run(Wide(at) + of.at_, length);
  }
  Result<TypeMap> finish() && {
    if (!bounds_.fit()) return too_large();
    Result<ListBuilder::Made> made = std::move(list_).finish();
    if (!made) return std::move(made).error();
    return TypeMap(std::move(made->tree), made->at, bounds_.low(), bounds_.high());
  }

 private:
  Bounds bounds_;
  ListBuilder list_;
};

int64_t TypeMap::size() const {
  return tree_ ? static_cast<int64_t>(tree_->size) : 0;
}

int64_t TypeMap::true_lb() const {
  return tree_ ? at_ + tree_->low : 0;
}

int64_t TypeMap::true_ub() const {
  return tree_ ? at_ + tree_->high : 0;
}

uint64_t TypeMap::pieces() const {
  return tree_ ? tree_->pieces : 0;
}

bool TypeMap::contiguous() const {
  if (!tree_) return extent() == 0;
  return tree_->kind == TypeNode::Kind::kRun && extent() == size();
}

bool TypeMap::monotone() const {
  return !tree_ || tree_->monotone;
}

bool TypeMap::ordered() const {
  return !tree_ || tree_->ordered;
}

Result<TypeMap> TypeMap::bytes(int64_t n) {
  if (n < 0) return negative("size", n);
  return TypeMap(make_run(static_cast<uint64_t>(n)), 0, 0, n);
}

Result<TypeMap> TypeMap::repeated(const TypeMap& of, int64_t count, int64_t stride) {
  if (count < 0) return negative("count", count);
  if (count == 0) return TypeMap();
  const Wide span = Wide(count - 1) * stride;
  Bounds bounds;
  bounds.add(of.lb_, of.ub_);
  bounds.add(of.lb_ + span, of.ub_ + span);
  if (!bounds.fit()) return too_large();
  Result<TypeTree> tree = make_loop(of.tree_, static_cast<uint64_t>(count), stride);
  if (!tree) return std::move(tree).error();
  if (*tree && (!fits(Wide(of.at_) + (*tree)->low) || !fits(Wide(of.at_) + (*tree)->high))) {
    return too_large();
  }
  return TypeMap(std::move(*tree), of.at_, bounds.low(), bounds.high());
}

Result<TypeMap> TypeMap::contiguous(int64_t count, const TypeMap& of) {
  return repeated(of, count, of.extent());
}

Result<TypeMap> TypeMap::vector(int64_t count, int64_t block, int64_t stride, const TypeMap& of) {
  if (count < 0) return negative("count", count);
  const Result<TypeMap> one = contiguous(block, of);
  if (!one || block == 0) return one;
  return repeated(*one, count, stride);
}

Result<TypeMap> TypeMap::indexed(std::span<const Block> blocks, const TypeMap& of) {
  Gather gather;
  gather.reserve(blocks.size());
  std::map<int64_t, TypeMap> made;  // by count
  for (const Block& block : blocks) {
    if (block.count < 0) return negative("block length", block.count);
    if (block.count == 0) continue;
    Result<void> ok;
    if (of.contiguous()) {
      ok = gather.add_run(block.at, block.count, of);
    } else {
      auto known = made.find(block.count);
      if (known == made.end()) {
        Result<TypeMap> one = contiguous(block.count, of);
        if (!one) return one;
        known = made.emplace(block.count, std::move(*one)).first;
      }
      ok = gather.add(block.at, known->second);
    }
    if (!ok) return std::move(ok).error();
  }
  return std::move(gather).finish();
}

Result<TypeMap> TypeMap::indexed_block(int64_t block, std::span<const int64_t> at,
                                       const TypeMap& of) {
  const Result<TypeMap> one = contiguous(block, of);
  if (!one || block == 0) return one;
  Gather gather;
  gather.reserve(at.size());
  for (const int64_t place : at) {
    if (auto ok = gather.add(place, *one); !ok) return std::move(ok).error();
  }
  return std::move(gather).finish();
}

Result<TypeMap> TypeMap::structure(std::span<const Member> members) {
  Gather gather;
  for (const Member& member : members) {
    if (member.count == 0) continue;
    const Result<TypeMap> one = contiguous(member.count, member.type);
    if (!one) return one;
    if (auto ok = gather.add(member.at, *one); !ok) return std::move(ok).error();
  }
  return std::move(gather).finish();
}

Result<TypeMap> TypeMap::resized(const TypeMap& of, int64_t lb, int64_t extent) {
  const Wide ub = Wide(lb) + extent;
  if (!fits(lb) || !fits(extent) || !fits(ub)) return too_large();
  return TypeMap(of.tree_, of.at_, lb, static_cast<int64_t>(ub));
}

}  // namespace forebay::plan
