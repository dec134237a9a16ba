// Subarray and distributed-array types, of the simpler ones (MPI-4.0, sections 5.1.3 and 5.1.4).
#pragma once

#include "core/result.h"
#include "mpiio/contents.h"
#include "plan/typemap.h"

namespace forebay::mpiio {

// Both read the arguments of a type of their kind from its contents; `of` is the element.
Result<plan::TypeMap> subarray_map(Contents& contents, const plan::TypeMap& of);
Result<plan::TypeMap> darray_map(Contents& contents, const plan::TypeMap& of);

}  // namespace forebay::mpiio
