// The MPI-IO call that an Access stands for.
#pragma once

#include "script.h"

namespace fuzz {

// Blocking: fills the status. Nonblocking: gives the request. Split: begins.
int start(const Access& a, MPI_File file, void* buffer, MPI_Datatype type, MPI_Status* status,
          MPI_Request* request);
int end_split(const Access& a, MPI_File file, void* buffer, MPI_Status* status);

}  // namespace fuzz
