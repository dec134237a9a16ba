// An MPI program that knows nothing of Forebay: every rank writes its block of a 3-D field to one
// HDF5 file, collectively, and reads it back. `forebay run -- mpiexec -n 8 field3d out.h5` runs it
// with Forebay's MPI-IO; without `forebay run` it uses the MPI's own.
//
//   mpiexec -n 8 field3d FILE [EDGE]   writes EDGE^3 doubles (default 192), prints seconds
//   field3d --check FILE               reads the whole file without MPI-IO and checks every value
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double value(hsize_t x, hsize_t y, hsize_t z) {
  return (double)x * 1e6 + (double)y * 1e3 + (double)z;
}

static void die(const char* what) {
  fprintf(stderr, "field3d: cannot %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// Whole file, one process, HDF5's ordinary driver.
static int check(const char* name) {
  hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t field = file < 0 ? -1 : H5Dopen2(file, "field", H5P_DEFAULT);
  if (field < 0) return fprintf(stderr, "field3d: cannot read %s\n", name), 1;
  hsize_t size[3];
  hid_t space = H5Dget_space(field);
  H5Sget_simple_extent_dims(space, size, NULL);
  double* all = malloc(size[0] * size[1] * size[2] * sizeof *all);
  if (!all || H5Dread(field, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) < 0) return 1;
  hsize_t wrong = 0, i = 0;
  for (hsize_t x = 0; x < size[0]; ++x)
    for (hsize_t y = 0; y < size[1]; ++y)
      for (hsize_t z = 0; z < size[2]; ++z) wrong += all[i++] != value(x, y, z);
  free(all);
  H5Sclose(space);
  H5Dclose(field);
  H5Fclose(file);
  printf("%llu values, %llu wrong\n", (unsigned long long)i, (unsigned long long)wrong);
  return wrong != 0;
}

typedef struct {
  hsize_t start[3], count[3];
} Block;

// Ranks as a grid of blocks, as even as it goes.
static Block block_of(int rank, int ranks, hsize_t edge) {
  int grid[3] = {0, 0, 0};
  MPI_Dims_create(ranks, 3, grid);
  const int at[3] = {rank / (grid[1] * grid[2]), rank / grid[2] % grid[1], rank % grid[2]};
  Block block;
  for (int d = 0; d < 3; ++d) {
    block.start[d] = edge * (hsize_t)at[d] / (hsize_t)grid[d];
    block.count[d] = edge * (hsize_t)(at[d] + 1) / (hsize_t)grid[d] - block.start[d];
  }
  return block;
}

static double* fill(const Block* b) {
  double* data = malloc(b->count[0] * b->count[1] * b->count[2] * sizeof *data);
  if (!data) die("find memory");
  size_t i = 0;
  for (hsize_t x = 0; x < b->count[0]; ++x)
    for (hsize_t y = 0; y < b->count[1]; ++y)
      for (hsize_t z = 0; z < b->count[2]; ++z)
        data[i++] = value(b->start[0] + x, b->start[1] + y, b->start[2] + z);
  return data;
}

static double seconds_of(MPI_Comm comm, double since) {
  double mine = MPI_Wtime() - since, most;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, comm);
  return most;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc == 3 && strcmp(argv[1], "--check") == 0) {
    const int code = check(argv[2]);
    MPI_Finalize();
    return code;
  }
  if (argc < 2) die("do anything: usage: field3d FILE [EDGE], or field3d --check FILE");
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const hsize_t edge = argc > 2 ? strtoull(argv[2], NULL, 10) : 192;
  const hsize_t size[3] = {edge, edge, edge};
  const Block b = block_of(rank, ranks, edge);
  double* data = fill(&b);

  MPI_Barrier(MPI_COMM_WORLD);
  double since = MPI_Wtime();
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
  if (file < 0) die("create the file");
  hid_t space = H5Screate_simple(3, size, NULL);
  hid_t field = H5Dcreate2(file, "field", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT,
                           H5P_DEFAULT);
  hid_t memory = H5Screate_simple(3, b.count, NULL);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, b.start, NULL, b.count, NULL);
  hid_t together = H5Pcreate(H5P_DATASET_XFER);
  H5Pset_dxpl_mpio(together, H5FD_MPIO_COLLECTIVE);
  if (H5Dwrite(field, H5T_NATIVE_DOUBLE, memory, space, together, data) < 0) die("write");
  H5Dclose(field);
  H5Fclose(file);
  const double written = seconds_of(MPI_COMM_WORLD, since);

  memset(data, 0, b.count[0] * b.count[1] * b.count[2] * sizeof *data);
  since = MPI_Wtime();
  file = H5Fopen(argv[1], H5F_ACC_RDONLY, access);
  field = file < 0 ? -1 : H5Dopen2(file, "field", H5P_DEFAULT);
  if (field < 0 || H5Dread(field, H5T_NATIVE_DOUBLE, memory, space, together, data) < 0)
    die("read");
  H5Dclose(field);
  H5Fclose(file);
  const double read = seconds_of(MPI_COMM_WORLD, since);

  double* expected = fill(&b);
  if (memcmp(data, expected, b.count[0] * b.count[1] * b.count[2] * sizeof *data) != 0)
    die("read what was written");
  if (rank == 0)
    printf("%d ranks, %.0f MB: written %.4f read %.4f\n", ranks,
           (double)(edge * edge * edge * sizeof(double)) / 1e6, written, read);
  free(expected);
  free(data);
  H5Pclose(together);
  H5Pclose(access);
  H5Sclose(memory);
  H5Sclose(space);
  MPI_Finalize();
  return 0;
}
