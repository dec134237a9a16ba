// What MPI says a datatype was made of: its combiner and the constructor's arguments, in their
// order. Types made by a large-count constructor are read the same way as any other.
// Owns the datatypes that MPI hands out, and frees those that are not predefined.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "core/result.h"

namespace forebay::mpiio {

enum class Combiner {
  kNamed,  // predefined, of Fortran's parametrized types too
  kDup,
  kContiguous,
  kVector,
  kHvector,
  kIndexed,
  kHindexed,
  kIndexedBlock,
  kHindexedBlock,
  kStruct,
  kSubarray,
  kDarray,
  kResized,
};

class Contents {
 public:
  // EINVAL for no type, and for a combiner that nobody knows.
  static Result<Contents> of(MPI_Datatype type);
  Contents(Contents&& other) noexcept;
  Contents& operator=(Contents&&) = delete;
  ~Contents();

  Combiner combiner() const { return combiner_; }
  const std::vector<MPI_Datatype>& types() const { return types_; }

  // The arguments, one after the other: what the constructor takes as int (a rank, an order), as a
  // count or a displacement in elements, and as an address or a displacement in bytes.
  int64_t integer();
  int64_t count();
  int64_t address();
  std::vector<int64_t> integers(int64_t n);
  std::vector<int64_t> counts(int64_t n);
  std::vector<int64_t> addresses(int64_t n);

 private:
  Contents() = default;
  Result<void> read(MPI_Datatype type);
  Result<void> classify(int combiner);

  Combiner combiner_ = Combiner::kNamed;
  bool integer_addresses_ = false;  // Fortran's old constructors
  std::vector<int> integers_;
  std::vector<MPI_Aint> addresses_;
  std::vector<MPI_Count> counts_;  // large counts: then all counts and addresses are here
  std::vector<MPI_Datatype> types_;
  size_t next_integer_ = 0, next_address_ = 0, next_count_ = 0;
};

// Is it one that MPI made, and that nobody may free?
Result<bool> is_predefined(MPI_Datatype type);

// EINVAL with MPI's own words, if the call failed.
Result<void> checked(int mpi_error, const char* what);

}  // namespace forebay::mpiio
