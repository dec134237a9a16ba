// Signature: the primitive elements of a datatype, in the order of its bytes, without their places:
// what a data representation converts, and what two types must agree in. A tree of repetitions, so
// as small as the type. Immutable and cheap to copy; any thread may read it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"

namespace forebay::mpiio {

class Signature {
 public:
  struct Run {
    MPI_Datatype primitive = MPI_DATATYPE_NULL;
    uint64_t count = 0;
  };
  struct Node;
  using Tree = std::shared_ptr<const Node>;

  Signature() = default;  // no elements
  static Signature of(MPI_Datatype primitive);
  // EOVERFLOW: more elements than 63 bits count.
  static Result<Signature> repeated(uint64_t count, const Signature& of);
  static Result<Signature> joined(const std::vector<Signature>& parts);

  uint64_t elements() const;
  // The primitive, if all elements are of one; otherwise MPI_DATATYPE_NULL.
  MPI_Datatype uniform() const;

  // fn(Run) for all elements of `count` copies, in order; runs of one primitive may come in several
  // parts. fn returns false to stop.
  template <class Fn>
  void for_each_run(uint64_t count, Fn&& fn) const;

 private:
  friend class SignatureCursor;
  explicit Signature(Tree tree) : tree_(std::move(tree)) {}
  Tree tree_;  // null: no elements
};

// Walks the elements of `count` copies. Keeps the tree alive.
class SignatureCursor {
 public:
  SignatureCursor(const Signature& signature, uint64_t count);

  bool done() const { return !leaf_; }
  // The next elements, all of one primitive: at most `most`; moves past them. None if done.
  Signature::Run next(uint64_t most);

 private:
  struct Frame {
    const Signature::Node* node;
    uint64_t index;  // the repetition, or the part
  };
  void descend(const Signature::Node* node);
  void next_leaf();

  Signature::Tree root_;
  std::vector<Frame> frames_;
  const Signature::Node* leaf_ = nullptr;  // null: done
  uint64_t taken_ = 0;                     // of the leaf
};

template <class Fn>
void Signature::for_each_run(uint64_t count, Fn&& fn) const {
  for (SignatureCursor cursor(*this, count); !cursor.done();) {
    if (!fn(cursor.next(UINT64_MAX))) return;
  }
}

}  // namespace forebay::mpiio
