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
Fault remove(const Whereabouts& place);

void take_hints(const HintList& list, Hints& hints);
// Of a file that is open: what works at open only is left alone, and what the user says stays.
void take_hints(MPI_Info info, File& file);
HintList hints_of(MPI_Info info);

}  // namespace forebay::mpiio
