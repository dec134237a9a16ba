// How long files are, and what space they have.
#include <mpi.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "cases.h"

namespace cases {
namespace {

MPI_Offset size_of(MPI_File file) {
  MPI_Offset size = -1;
  MPI_File_get_size(file, &size);
  return size;
}

MPI_Offset position(MPI_File file) {
  MPI_Offset at = -1;
  MPI_File_get_position(file, &at);
  return at;
}

int bytes_of(const MPI_Status& status) {
  int bytes = -1;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  return bytes;
}

}  // namespace

// One run of bytes that does not end as it should: the pointer and the count tell the truth.
void cut_short() {
  constexpr int kInts = 1000, kSize = kInts * static_cast<int>(sizeof(int));
  const std::string name = path(rank ? "short1" : "short0");
  MPI_File file = open(MPI_COMM_SELF, name, kNew);
  std::vector<int> ints(2 * kInts, 7), back(2 * kInts, 0);
  MPI_Status status;
  MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  check(MPI_File_write(file, ints.data(), kInts, MPI_INT, &status) == MPI_SUCCESS &&
            bytes_of(status) == kSize && position(file) == kInts,
        "a write by the individual pointer");
  check(MPI_File_write(file, ints.data(), 3, MPI_CHAR, &status) != MPI_SUCCESS &&
            position(file) == kInts,
        "three quarters of an etype");
  MPI_File_seek(file, 10, MPI_SEEK_SET);
  check(MPI_File_read(file, back.data(), 2 * kInts, MPI_INT, &status) == MPI_SUCCESS &&
            bytes_of(status) == kSize - 40 && back[kInts - 11] == 7 && back[kInts - 10] == 0,
        "a read that the end of the file cuts short");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 8 + kSize + 1000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  MPI_File_seek(file, kInts / 2, MPI_SEEK_SET);
  check(MPI_File_write(file, ints.data(), 2 * kInts, MPI_INT, &status) != MPI_SUCCESS &&
            bytes_of(status) == kSize / 2 + 1000 && position(file) == kInts / 2 + 2 * kInts,
        "a write that a limit cuts short");
  ::setrlimit(RLIMIT_FSIZE, &before);
  MPI_Offset size = size_of(file);
  check(size == 8 + kSize + 1000, "its size");
  MPI_File_seek(file, MPI_Offset(1) << 60, MPI_SEEK_SET);
  check(
      MPI_File_read(file, back.data(), 1, MPI_INT, &status) == MPI_SUCCESS && bytes_of(status) == 0,
      "a read far behind the end");
  check(MPI_File_write_at(file, (MPI_Offset(1) << 61) - 1, ints.data(), 2, MPI_INT, &status) !=
            MPI_SUCCESS,
        "a write beyond what a file can hold");
  MPI_File_close(&file);
}

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
