// How a call of MPI-IO ends that failed: the error handler of its file runs (MPI-4.0, 14.7), or for
// calls without a file that of MPI_FILE_NULL; then the call returns the error class.
#pragma once

#include <string>

#include "mpiio/file.h"

namespace forebay::mpiio {

// `file` may be null. Returns what the call returns: MPI_SUCCESS if nothing went wrong.
int report(File* file, const char* call, const Fault& fault);
int report_no_file(const char* call);  // the handle that the call was given names none
int report_no_mpi(
    const char* call);  // it is not possible (Process::possible()); so neither a handler

// What it said when this code was the last one that it reported to this thread; empty otherwise.
std::string last_report(int code);

}  // namespace forebay::mpiio
