// Ordered calls (MPI-4.0, 14.4.4) of ranks that are near each other: the place of each one's data,
// one after the other in the order of ranks, by one exchange. Whoever comes last moves the pointer
// for all, and if every rank's data is small, writes it for all too, by one call: so each rank has
// to be woken once.
#pragma once

#include "mpiio/file.h"
#include "mpiio/transfer.h"

namespace forebay::mpiio {

struct OrderedPlace {
  Fault fault;  // nobody has a place
  MPI_Offset position = 0;
  bool written = false;  // what became of it is the fault of the transfer, for all ranks
};
// `transfer`: measured. One with a fault takes part, and has no data. `write`: now, if it is small.
OrderedPlace take_place_in_order(File& file, Transfer& transfer, bool write);

}  // namespace forebay::mpiio
