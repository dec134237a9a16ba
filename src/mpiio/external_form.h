// The form that each predefined datatype has in external32 (external32.h).
#pragma once

#include <mpi.h>

#include "mpiio/external32.h"

namespace forebay::mpiio {

// EINVAL: external32 has none for it. Any thread that may call MPI.
Result<ExternalForm> external_form(MPI_Datatype primitive);

}  // namespace forebay::mpiio
