/* An HDF5 program like any other: a field in datasets of every layout, written independently and
 * collectively, read back across. The argument is the file. */
#include <hdf5.h>
#include <string.h>

#include "field.h"

static hid_t transfer(H5FD_mpio_xfer_t mode) {
  const hid_t plist = H5Pcreate(H5P_DATASET_XFER);
  CHECK(H5Pset_dxpl_mpio(plist, mode) >= 0);
  return plist;
}

static hid_t select_block(hid_t set, const struct block* b) {
  hsize_t start[3], count[3];
  for (int d = 0; d < 3; ++d) start[d] = b->start[d], count[d] = b->count[d];
  const hid_t space = H5Dget_space(set);
  CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0);
  return space;
}

static hid_t memory_of(const struct block* b) {
  const hsize_t n = block_size(b);
  return H5Screate_simple(1, &n, NULL);
}

static void write_block(hid_t set, H5FD_mpio_xfer_t mode) {
  const struct block b = writers_block(rank, ranks);
  double* values = block_values(&b);
  const hid_t space = select_block(set, &b), memory = memory_of(&b), how = transfer(mode);
  CHECK(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, how, values) >= 0);
  H5Pclose(how), H5Sclose(memory), H5Sclose(space);
  free(values);
}

/* Each rank the planes rank, rank + ranks, ... of the last dimension: a stride in the file. */
static void write_planes(hid_t set, H5FD_mpio_xfer_t mode) {
  const hsize_t planes = (hsize_t)((NX - rank + ranks - 1) / ranks);
  const hsize_t start[3] = {0, 0, (hsize_t)rank}, stride[3] = {1, 1, (hsize_t)ranks};
  const hsize_t count[3] = {NZ, NY, planes}, total = NZ * NY * planes;
  double* values = malloc(total * sizeof(double));
  double* at = values;
  for (size_t z = 0; z < NZ; ++z)
    for (size_t y = 0; y < NY; ++y)
      for (size_t x = (size_t)rank; x < NX; x += (size_t)ranks) *at++ = field_value(z, y, x);
  const hid_t space = H5Dget_space(set), memory = H5Screate_simple(1, &total, NULL);
  CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL) >= 0);
  const hid_t how = transfer(mode);
  CHECK(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, how, values) >= 0);
  H5Pclose(how), H5Sclose(memory), H5Sclose(space);
  free(values);
}

static void read_back(const char* name, hid_t set, H5FD_mpio_xfer_t mode) {
  const struct block b = readers_block(rank, ranks);
  double* values = malloc(block_size(&b) * sizeof(double));
  const hid_t space = select_block(set, &b), memory = memory_of(&b), how = transfer(mode);
  CHECK(H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, how, values) >= 0);
  check_block(name, &b, values);
  H5Pclose(how), H5Sclose(memory), H5Sclose(space);
  free(values);
}

struct dataset {
  const char* name;
  int chunked, deflated;
  H5FD_mpio_xfer_t mode;
  void (*write)(hid_t, H5FD_mpio_xfer_t);
};

static const struct dataset datasets[] = {
    {"contiguous_independent", 0, 0, H5FD_MPIO_INDEPENDENT, write_block},
    {"contiguous_collective", 0, 0, H5FD_MPIO_COLLECTIVE, write_block},
    {"chunked_independent", 1, 0, H5FD_MPIO_INDEPENDENT, write_block},
    {"chunked_collective", 1, 0, H5FD_MPIO_COLLECTIVE, write_block},
    {"deflated_collective", 1, 1, H5FD_MPIO_COLLECTIVE, write_block},
    {"planes_independent", 0, 0, H5FD_MPIO_INDEPENDENT, write_planes},
    {"planes_collective", 0, 0, H5FD_MPIO_COLLECTIVE, write_planes},
    {"chunked_planes_collective", 1, 0, H5FD_MPIO_COLLECTIVE, write_planes},
};
enum { kDatasets = sizeof datasets / sizeof *datasets };

static hid_t create(hid_t file, const struct dataset* d) {
  const hsize_t extent[3] = {NZ, NY, NX}, chunk[3] = {10, 16, 8};
  const hid_t space = H5Screate_simple(3, extent, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  if (d->chunked) CHECK(H5Pset_chunk(plist, 3, chunk) >= 0);
  if (d->deflated) CHECK(H5Pset_deflate(plist, 4) >= 0);
  const hid_t set =
      H5Dcreate2(file, d->name, H5T_IEEE_F64LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  CHECK(set >= 0);
  H5Pclose(plist), H5Sclose(space);
  return set;
}

static hid_t access_by_mpi(void) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
  return access;
}

/* Datasets [from, to) of the table. */
static void write_some(hid_t file, int from, int to) {
  for (int i = from; i < to; ++i) {
    const hid_t set = create(file, &datasets[i]);
    datasets[i].write(set, datasets[i].mode);
    CHECK(H5Dclose(set) >= 0);
  }
}

static void write_all(const char* path) {
  hid_t access = access_by_mpi();
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  CHECK(file >= 0);
  write_some(file, 0, kDatasets / 2);
  CHECK(H5Fclose(file) >= 0);
  /* A file that is there already grows. */
  file = H5Fopen(path, H5F_ACC_RDWR, access);
  CHECK(file >= 0);
  write_some(file, kDatasets / 2, kDatasets);
  CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  CHECK(H5Fclose(file) >= 0);
  H5Pclose(access);
}

static void read_all(const char* path) {
  const hid_t access = access_by_mpi();
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
  CHECK(file >= 0);
  for (int i = 0; i < kDatasets; ++i) {
    const hid_t set = H5Dopen2(file, datasets[i].name, H5P_DEFAULT);
    CHECK(set >= 0);
    read_back(datasets[i].name, set, H5FD_MPIO_COLLECTIVE);
    read_back(datasets[i].name, set, H5FD_MPIO_INDEPENDENT);
    CHECK(H5Dclose(set) >= 0);
  }
  CHECK(H5Fclose(file) >= 0);
  H5Pclose(access);
}

int main(int argc, char** argv) {
  return run_client(argc, argv, write_all, read_all);
}
