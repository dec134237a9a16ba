// Fault: what went wrong in a call of MPI-IO, as the program sees it (an error class) and as a
// person does (a text). Error classes are returned bare: the codes that MPI lets libraries add have
// unusable texts on some MPIs.
#pragma once

#include <string>

#include "core/result.h"
#include "mpiio/mpi_api.h"

namespace forebay::mpiio {

struct Fault {
  int code = MPI_SUCCESS;
  std::string text;

  explicit operator bool() const { return code != MPI_SUCCESS; }
};

Fault fault_of(const Error& error);
// The error class for an errno.
int class_of(int code);

// Is it one that programs provoke on purpose, to learn whether a file is there? Others deserve a
// line on stderr even if the program ignores what calls return.
bool ordinary(int code);

}  // namespace forebay::mpiio
