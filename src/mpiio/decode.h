// Decoder: what an MPI_Datatype means. Its bytes (a plan::TypeMap), and its primitive elements (a
// Signature), both taken from the envelope and contents that MPI gives of every type.
//
// What is decoded is kept, nested types too, as an attribute of the type itself: MPI drops it with
// the type, so a handle that was freed and given to another type is never mistaken. Any thread may
// call (if MPI's thread level lets it call MPI). Make it after MPI_Init; let go of it before
// MPI_Finalize has ended, or leak it: what it holds of MPI is one keyval.
//
// Errors are EINVAL (MPI_ERR_TYPE: no type, not committed, of a kind that MPI does not explain) or
// EOVERFLOW (bytes or bounds beyond 63 bits).
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/result.h"
#include "mpiio/signature.h"
#include "plan/typemap.h"

namespace forebay::mpiio {

class Contents;

// The bytes that a primitive takes in a file of a data representation with sizes of its own.
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
  // How many bytes an item has, if it is known that it is committed and that those of several lie
  // side by side from the buffer's address on.
  std::optional<uint64_t> dense(MPI_Datatype type);
  // EINVAL if MPI would not move data of this type. The answer yes is kept. `comm`: any whose
  // errors are returned, since MPI can be asked only by way of one.
  Result<void> check_committed(MPI_Datatype type, MPI_Comm comm);

  // The type as it lies in a file of another representation: displacements that the program gave in
  // elements count elements of those sizes, those that it gave in bytes stay. Not kept.
  Result<plan::TypeMap> decode_in_file(MPI_Datatype type, const PrimitiveSize& size);

 private:
  struct Kept {
    std::optional<plan::TypeMap> map;
    std::optional<Signature> signature;
    bool committed = false;
  };
  Decoder() = default;
  static int drop(MPI_Datatype type, int keyval, void* kept, void* extra);
  Result<Signature> combined_signature(MPI_Datatype type, Contents& contents);
  Kept* find(MPI_Datatype type);
  Kept known(MPI_Datatype type);
  template <class Fn>
  Result<void> keep(MPI_Datatype type, Fn&& fn);

  int keyval_ = MPI_KEYVAL_INVALID;
  std::mutex mutex_;  // over all that is kept, here or with a type
  std::unordered_map<MPI_Datatype, Kept> predefined_;
};

}  // namespace forebay::mpiio
