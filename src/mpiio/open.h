// Opening, closing and deleting files. Collective, except for deleting; an error of any rank is an
// error of all, and then nothing stays open.
#pragma once

#include "mpiio/file.h"

namespace forebay::mpiio {

// `file` is set if there is no fault.
Fault open(MPI_Comm comm, const char* name, int amode, MPI_Info info, std::shared_ptr<File>& file);
Fault close(File& file);
// What can be done alone, when MPI is about to end.
void abandon(File& file);
Fault remove(const char* name);

void take_hints(const HintList& list, Hints& hints);
HintList hints_of(MPI_Info info);

}  // namespace forebay::mpiio
