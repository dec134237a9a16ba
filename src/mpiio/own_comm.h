// Communicators of our own: duplicates, so that nothing of ours meets the program's messages, whose
// errors are returned.
#pragma once

#include <mpi.h>

#include "core/result.h"

namespace forebay::mpiio {

// Collective; all ranks fail or none, since MPI agrees on a number of the new communicator. That
// there is none left is an error that is returned too, whatever the handler of `comm` would do, but
// in programs of several threads: there another one may need the handler meanwhile.
Result<MPI_Comm> own_comm(MPI_Comm comm);

}  // namespace forebay::mpiio
