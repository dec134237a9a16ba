// The MPI that this library is built for, and how its own functions are reached past ours.
//
// Compiled once for MPICH and once for Open MPI. Within mpiio/ MPI is called by the PMPI_ names, so
// that a profiling tool sees the program's calls and not ours. What we define ourselves (the
// MPI_File_ functions, and those that complete requests) is reached by next().
#pragma once

#include <dlfcn.h>
#include <mpi.h>

#include "core/assert.h"

namespace forebay::mpiio {

// The definition that follows ours in the order in which libraries are searched: the MPI library's
// own, or a tool's that stands between.
template <class Function>
Function* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  FOREBAY_ASSERT(found != nullptr, name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace forebay::mpiio

// One definition under both names: Fortran bindings and tools use either.
#define FOREBAY_ALSO_PMPI(name) \
  extern "C" decltype(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name)))
