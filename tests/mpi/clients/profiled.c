/* profiled FILE: opens, writes without blocking, waits: what a profiler (tool.c) has to see. */
#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_File file;
  MPI_Request request;
  if (argc != 2 ||
      MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file))
    MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_File_iwrite_at(file, 0, "abc", 3, MPI_CHAR, &request);
  if (MPI_Wait(&request, MPI_STATUS_IGNORE)) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_File_close(&file);
  MPI_Finalize();
  return 0;
}
