// MPI_Init and its kind, which begin with MPI's own and end with our watch for the end of MPI
// (process.h): whatever a program or another library leaves at MPI_COMM_SELF comes later, and so is
// over before us. HDF5 closes files that way.
#include "mpiio/process.h"

using forebay::mpiio::next;
using forebay::mpiio::Process;

namespace {

int begun(int code) {
  if (code == MPI_SUCCESS) Process::watch_for_the_end();
  return code;
}

}  // namespace

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  return begun(next<decltype(MPI_Init)>("MPI_Init")(argc, argv));
}

int PMPI_Init(int* argc, char*** argv) {
  return begun(next<decltype(MPI_Init)>("PMPI_Init")(argc, argv));
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return begun(next<decltype(MPI_Init_thread)>("MPI_Init_thread")(argc, argv, required, provided));
}

int PMPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return begun(next<decltype(MPI_Init_thread)>("PMPI_Init_thread")(argc, argv, required, provided));
}
}
