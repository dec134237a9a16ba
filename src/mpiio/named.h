// The predefined datatypes: one element each, or a value and an int in a C struct (MPI_FLOAT_INT
// ...), whose holes MPI does not tell of.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>

#include "core/result.h"
#include "plan/typemap.h"

namespace forebay::mpiio {

struct PairType {
  MPI_Datatype value, index;
  int64_t index_at;  // displacement of the second
};
// Nothing for types of one element.
std::optional<PairType> pair_type(MPI_Datatype named);

Result<int64_t> size_of(MPI_Datatype type);

// The bytes that a predefined type names, within the bounds that MPI gives it.
Result<plan::TypeMap> named_map(MPI_Datatype type);

// The same bytes with the bounds that MPI says the type has.
Result<plan::TypeMap> bounded(MPI_Datatype type, const plan::TypeMap& map);

}  // namespace forebay::mpiio
