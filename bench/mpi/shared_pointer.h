// Workloads "shared" and "ordered": all ranks write records of 4 KiB at the shared file pointer,
// each when it likes (MPI_File_write_shared) or in the order of ranks (MPI_File_write_ordered). A
// round is a new file; its time has the close in it, not the open. Every record must be there once,
// of ordered ones in its place.
#pragma once

#include "job.h"

namespace bench {

void run_shared_pointer(const JobOptions& options, const std::string& name, int records, Seat seat);

}  // namespace bench
