/* A job that meets its end in the middle of its I/O: crash MODE FILE
 *   abort   rank 1 calls MPI_Abort, with requests under way and a lock of atomic mode in use
 *   kill    rank 1 kills itself
 *   errors  writes until a call fails, and prints what every rank got; says "writing" on the way
 *   open    ends with the file open
 *   late    the same, and MPI_Finalize writes to it and closes it, as HDF5 has it do */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kBlock = 1 << 20, kRounds = 100000 };

static int rank, ranks;
static char* block;

static const char* name_of(int code) {
  int class_ = MPI_SUCCESS;
  MPI_Error_class(code, &class_);
  return class_ == MPI_SUCCESS            ? "success"
         : class_ == MPI_ERR_NO_SPACE     ? "no-space"
         : class_ == MPI_ERR_IO           ? "io"
         : class_ == MPI_ERR_NO_SUCH_FILE ? "no-such-file"
                                          : "other";
}

static void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  fprintf(stderr, "rank %d: %s: %s\n", rank, what, name_of(code));
  usleep(300000); /* MPICH's launcher throws away what it has not read when a job is aborted */
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void end_in_the_middle(MPI_File file, const char* mode) {
  MPI_Request requests[4];
  MPI_Status statuses[4];
  must(MPI_File_set_atomicity(file, 1), "set_atomicity");
  for (int round = 0; round < kRounds; ++round) {
    must(MPI_File_write_shared(file, block, 100, MPI_BYTE, MPI_STATUS_IGNORE), "write_shared");
    for (int i = 0; i < 4; ++i)
      must(MPI_File_iwrite_at(file, (MPI_Offset)(4 * rank + i) * kBlock, block, kBlock, MPI_BYTE,
                              &requests[i]),
           "iwrite_at");
    if (round == 5 && rank == 1 && strcmp(mode, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
    if (round == 5 && rank == 1) raise(SIGKILL);
    MPI_Waitall(4, requests, statuses);
  }
}

/* On standard output: "rank 0: CLASS of the collective write, of a write alone, of close". Rank 0
 * has nothing to write in the collective, and learns of the others' error all the same. */
static void until_an_error(MPI_File file) {
  int code = MPI_SUCCESS;
  for (int round = 0; round < kRounds && code == MPI_SUCCESS; ++round) {
    code = MPI_File_write_at_all(file, (MPI_Offset)(round % 64 * ranks + rank) * kBlock, block,
                                 rank == 0 ? 0 : kBlock, MPI_BYTE, MPI_STATUS_IGNORE);
    if (round == 3 && rank == 0) puts("writing"), fflush(stdout);
  }
  const int alone = MPI_File_write_at(file, (MPI_Offset)(64 * ranks + rank) * kBlock, block, kBlock,
                                      MPI_BYTE, MPI_STATUS_IGNORE);
  const int closed = MPI_File_close(&file);
  printf("rank %d: %s %s %s\n", rank, name_of(code), name_of(alone), name_of(closed));
  fflush(stdout);
}

/* Rank 0 writes what only the end knows, and all of them leave nothing open. */
static int finish(MPI_Comm comm, int key, void* file, void* nothing) {
  (void)comm, (void)key, (void)nothing;
  const MPI_Offset end = (MPI_Offset)(rank == 0 ? ranks : 0) * kBlock;
  must(MPI_File_write_at_all(*(MPI_File*)file, end, "end", rank == 0 ? 3 : 0, MPI_BYTE,
                             MPI_STATUS_IGNORE),
       "write_at_all");
  must(MPI_File_close(file), "close");
  return MPI_SUCCESS;
}

/* Before the file is opened: HDF5 does so when it is first used. */
static void finish_at_the_end(MPI_File* file) {
  int key;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finish, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, file);
  MPI_Comm_free_keyval(&key);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  block = malloc(kBlock);
  memset(block, 'a' + rank, kBlock);
  MPI_File file;
  if (strcmp(argv[1], "late") == 0) finish_at_the_end(&file);
  must(
      MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file),
      "open");
  if (strcmp(argv[1], "errors") == 0)
    until_an_error(file);
  else if (strcmp(argv[1], "open") == 0 || strcmp(argv[1], "late") == 0)
    must(MPI_File_write_at(file, (MPI_Offset)rank * kBlock, block, kBlock, MPI_BYTE,
                           MPI_STATUS_IGNORE),
         "write_at");
  else
    end_in_the_middle(file, argv[1]);
  MPI_Finalize();
  return 0;
}
