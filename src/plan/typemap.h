// TypeMap: which bytes an MPI datatype names, in which order, and where the next copy of it begins.
// A view of a file or a buffer in memory is one that is repeated (plan/tiled_map.h).
//
// It is a tree of loops, not a list: a run of bytes; a child repeated at a stride; a list of
// children at displacements. The makers, which are MPI's constructors with every displacement in
// bytes, bring it to a small form as it grows: runs that continue each other are one, a loop whose
// child continues itself is one longer child, a list of equal children at equal distances is a
// loop. So a regular type costs a few numbers, however many pieces it has, and any other 24 bytes
// for each of its blocks.
//
// Displacements and bounds are signed, and so may be extents: memory types go backwards, overlap,
// and repeat in place. The makers check all arithmetic: EOVERFLOW for what 63 bits cannot hold,
// EINVAL for a negative count. What the type's bytes mean (elements, alignment) it does not know:
// whoever decodes an MPI datatype sets the bounds that MPI says it has (resized()).
//
// Immutable and cheap to copy (the tree is shared); any thread may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"

namespace forebay::plan {

struct TypeNode;                                   // plan/type_node.h
using TypeTree = std::shared_ptr<const TypeNode>;  // null: no bytes

class TypeMap {
 public:
  struct Block {  // `count` copies, one after the other by their extent, beginning at `at`
    int64_t at = 0;
    int64_t count = 0;
  };
  struct Member;

  TypeMap() = default;  // no bytes, no extent

  static Result<TypeMap> bytes(int64_t n);
  static Result<TypeMap> contiguous(int64_t count, const TypeMap& of);
  // `count` blocks of `block` copies; `stride` in bytes from one block to the next.
  static Result<TypeMap> vector(int64_t count, int64_t block, int64_t stride, const TypeMap& of);
  static Result<TypeMap> indexed(std::span<const Block> blocks, const TypeMap& of);
  static Result<TypeMap> indexed_block(int64_t block, std::span<const int64_t> at,
                                       const TypeMap& of);
  static Result<TypeMap> structure(std::span<const Member> members);
  // The same bytes with other bounds.
  static Result<TypeMap> resized(const TypeMap& of, int64_t lb, int64_t extent);

  int64_t size() const;  // bytes named
  int64_t lb() const { return lb_; }
  int64_t ub() const { return ub_; }
  int64_t extent() const { return ub_ - lb_; }
  // The smallest range that holds every byte; both 0 if there is none.
  int64_t true_lb() const;
  int64_t true_ub() const;
  int64_t true_extent() const { return true_ub() - true_lb(); }

  // Runs walked: an upper bound of the pieces that are apart.
  uint64_t pieces() const;
  // What tells types apart at no cost: equal types have equal ones, and others rarely.
  struct Outline {
    int64_t size = 0, lb = 0, extent = 0, true_lb = 0, true_extent = 0;
    uint64_t pieces = 0;
    bool operator==(const Outline&) const = default;
  };
  Outline outline() const { return {size(), lb(), extent(), true_lb(), true_extent(), pieces()}; }
  // All bytes are one run, and copies of it continue each other.
  bool contiguous() const;
  // Every piece begins where the one before it ends, or after: what a file type must be if the file
  // is written. Says nothing of negative displacements (true_lb()).
  bool monotone() const;
  // No piece begins before the one before it, but they may overlap: enough for reading.
  bool ordered() const;

 private:
  friend class TiledMap;
  class Gather;
  TypeMap(TypeTree tree, int64_t at, int64_t lb, int64_t ub)
      : tree_(std::move(tree)), at_(at), lb_(lb), ub_(ub) {}

  static Result<TypeMap> repeated(const TypeMap& of, int64_t count, int64_t stride);

  TypeTree tree_;
  int64_t at_ = 0;  // displacement of the first byte
  int64_t lb_ = 0;
  int64_t ub_ = 0;
};

struct TypeMap::Member {
  int64_t at = 0;
  int64_t count = 0;
  TypeMap type;
};

}  // namespace forebay::plan
