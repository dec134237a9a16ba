// One case: a few sessions on one file, and after each a look at the file itself.
#pragma once

#include "options.h"

#include <mpi.h>

namespace fuzz {

class Watchdog;

// Collective over MPI_COMM_WORLD. Returns whether all went as the oracle says; the first difference
// has been printed, with the script.
bool run_case(const Options& options, uint64_t seed, int64_t number, Watchdog& watchdog);

}  // namespace fuzz
