// The nodes that a TypeMap is made of, and their makers, which keep them in a small form.
//
// Invariants: 1. a node names at least one byte, and its first one (in the order of the walk) is at
// 0: whoever holds a node says where it lies, so equal shapes are equal nodes; 2. a loop has two or
// more repetitions, a list two or more entries; 3. sizes, bounds and strides times counts fit in 63
// bits. Immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "plan/typemap.h"

namespace forebay::plan {

__extension__ typedef __int128 Wide;  // holds any sum or product of two 64-bit numbers

// Sizes and bounds may not be larger, so that they can be negated.
constexpr bool fits(Wide v) {
  return v >= -Wide(INT64_MAX) && v <= Wide(INT64_MAX);
}
Error too_large();  // EOVERFLOW

struct TypeNode {
  enum class Kind : uint8_t { kRun, kLoop, kList };
  struct Entry {
    int64_t at;             // of its first byte
    uint64_t start;         // its place in the list's stream
    const TypeNode* child;  // null: a run, up to where the next entry starts
  };

  Kind kind = Kind::kRun;
  bool monotone = true;  // as TypeMap has it
  bool ordered = true;
  uint64_t size = 0;
  uint64_t pieces = 1;
  int64_t low = 0, high = 0;  // the smallest range that holds every byte
  int64_t last = 0;           // where the last run begins

  uint64_t count = 0;  // of a loop
  int64_t stride = 0;
  TypeTree child;

  std::vector<Entry> entries;      // of a list
  std::vector<TypeTree> children;  // keeps them alive

  uint64_t entry_size(size_t i) const {
    return (i + 1 < entries.size() ? entries[i + 1].start : size) - entries[i].start;
  }
  // The entry that holds byte `at` of the list's stream.
  size_t entry_of(uint64_t at) const;
};

TypeTree make_run(uint64_t length);
// `child` may be null (no bytes), and count 0.
Result<TypeTree> make_loop(TypeTree child, uint64_t count, int64_t stride);

// Collects children at displacements, in order.
class ListBuilder {
 public:
  void reserve(size_t entries) { entries_.reserve(entries); }
  Result<void> add(Wide at, const TypeTree& child);  // null: nothing
  Result<void> add_run(Wide at, Wide length);

  struct Made {
    TypeTree tree;
    int64_t at = 0;  // of its first byte
  };
  Result<Made> finish() &&;

 private:
  using Entry = TypeNode::Entry;  // `start` counts all bytes added before
  Result<void> append(Wide at, uint64_t size, const TypeTree& child);
  uint64_t entry_size(size_t i) const;
  bool equal_children(size_t a, size_t b) const;
  Result<bool> extend_last_loop(int64_t at, uint64_t size, const TypeTree& child);
  bool regular() const;
  bool has_small_lists() const;
  TypeTree child_of(size_t i) const;
  Result<ListBuilder> flattened() const;
  Result<Made> finish_list() &&;

  std::vector<Entry> entries_;
  std::vector<TypeTree> children_;  // without immediate repetition
  uint64_t size_ = 0;
  bool grown_ = false;  // the last child was made here, of shorter ones
};

}  // namespace forebay::plan
