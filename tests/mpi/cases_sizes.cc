// How long files are, and what space they have.
#include <mpi.h>
#include <sys/stat.h>

#include <cstring>

#include "cases.h"

namespace cases {
namespace {

MPI_Offset size_of(MPI_File file) {
  MPI_Offset size = -1;
  MPI_File_get_size(file, &size);
  return size;
}

}  // namespace

// What is there stays. `without_room`: more than any disk has is asked for too, which other MPI-IO
// may begin to write.
void preallocated(bool without_room) {
  constexpr MPI_Offset kSize = 3'000'005;
  MPI_File file = open(MPI_COMM_WORLD, path("space"), kNew);
  MPI_File_write_at_all(file, 1'000'000 * rank, "text", 4, MPI_CHAR, MPI_STATUS_IGNORE);
  check(MPI_File_preallocate(file, kSize) == MPI_SUCCESS, "preallocate");
  check(size_of(file) == kSize, "as long as it was asked for");
  check(MPI_File_preallocate(file, 10) == MPI_SUCCESS && size_of(file) == kSize,
        "no shorter by it");
  char back[4] = {};
  MPI_File_read_at_all(file, 1'000'000 * (1 - rank), back, 4, MPI_CHAR, MPI_STATUS_IGNORE);
  check(std::memcmp(back, "text", 4) == 0, "what was there before the space");
  int error_class = MPI_SUCCESS;
  if (without_room) {
    MPI_Error_class(MPI_File_preallocate(file, MPI_Offset(1) << 60), &error_class);
    check(error_class == MPI_ERR_NO_SPACE && size_of(file) == kSize, "more than there is");
  }
  MPI_Error_class(MPI_File_preallocate(file, rank ? kSize : 2 * kSize), &error_class);
  check(error_class != MPI_SUCCESS && size_of(file) == kSize, "ranks that ask for different sizes");
  MPI_File_sync(file);
  MPI_File_close(&file);
  struct stat st = {};
  check(::stat(path("space").c_str(), &st) == 0 && st.st_blocks * 512 >= kSize, "blocks");
}

}  // namespace cases
