// Decoder: what an MPI_Datatype means. Its bytes (a plan::TypeMap), and its primitive elements (a
// Signature), both taken from the envelope and contents that MPI gives of every type.
//
// What is decoded is kept, nested types too, as an attribute of the type itself: MPI drops it with
// the type, so a handle that was freed and given to another type is never mistaken. Any thread may
// call (if MPI's thread level lets it call MPI). Make it after MPI_Init; let go of it before
// MPI_Finalize has ended, or leak it: what it holds of MPI is one keyval and one communicator.
//
// Errors are EINVAL (MPI_ERR_TYPE: no type, not committed, of a kind that MPI does not explain) or
// EOVERFLOW (bytes or bounds beyond 63 bits).
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "plan/typemap.h"

namespace forebay::mpiio {

// The primitive (predefined, not of pairs) elements of a type, in the order of its bytes; a tree of
// repetitions, so as small as the type. Immutable, cheap to copy.
class Signature {
 public:
  struct Run {
    MPI_Datatype primitive = MPI_DATATYPE_NULL;
    uint64_t count = 0;
  };
  struct Node;

  Signature() = default;  // no elements
  explicit Signature(std::shared_ptr<const Node> root) : root_(std::move(root)) {}
  static Signature of(MPI_Datatype primitive);
  static Result<Signature> repeated(uint64_t count, const Signature& of);
  static Result<Signature> joined(std::vector<Signature> parts);

  uint64_t elements() const;
  // All elements are of one type: that type, otherwise MPI_DATATYPE_NULL.
  MPI_Datatype uniform() const;
  const std::shared_ptr<const Node>& root() const { return root_; }

 private:
  std::shared_ptr<const Node> root_;
};

// Walks `count` copies of a signature, run by run. Keeps it alive.
class SignatureCursor {
 public:
  SignatureCursor(const Signature& signature, uint64_t count);
  ~SignatureCursor();
  SignatureCursor(SignatureCursor&&) noexcept;

  bool done() const { return frames_.empty(); }
  // Up to `most` elements of one primitive, and moves past them. Runs that continue each other may
  // come one by one. Nothing left: a count of 0.
  Signature::Run next(uint64_t most);

 private:
  struct Frame;
  void descend(std::shared_ptr<const Signature::Node> node);
  void leave();
  std::vector<Frame> frames_;
};

// The bytes that a primitive takes in a file, of a data representation that has sizes of its own.
using PrimitiveSize = std::function<Result<int64_t>(MPI_Datatype primitive)>;

class Decoder {
 public:
  static Result<std::unique_ptr<Decoder>> make();
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // The type's bytes, and MPI's own bounds of it. Committed or not: see check_committed().
  Result<plan::TypeMap> decode(MPI_Datatype type);
  Result<Signature> signature(MPI_Datatype type);
  // EINVAL if MPI would not move data of this type. The answer yes is kept.
  Result<void> check_committed(MPI_Datatype type);

  // The type as it lies in a file of another representation: displacements that the program gave in
  // elements count elements of those sizes, those that it gave in bytes stay. Not kept.
  Result<plan::TypeMap> decode_in_file(MPI_Datatype type, const PrimitiveSize& size);

 private:
  struct Kept;
  Decoder() = default;
  Result<plan::TypeMap> build(MPI_Datatype type, const PrimitiveSize* size);
  Result<Signature> build_signature(MPI_Datatype type);
  template <class Fn>
  auto with_kept(MPI_Datatype type, Fn&& fn);

  int keyval_ = MPI_KEYVAL_INVALID;
  MPI_Comm self_ = MPI_COMM_NULL;  // returns errors
  std::mutex mutex_;               // over all that is kept, here or at a type
  std::unordered_map<MPI_Datatype, plan::TypeMap> predefined_;
};

}  // namespace forebay::mpiio
