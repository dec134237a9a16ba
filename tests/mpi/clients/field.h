/* The field that the clients write: a box of doubles, each of which says where it is, so that a
 * serial program (clients.py) knows what every one has to be. The ranks share it out in blocks. */
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* No multiple of anything. */
enum { NZ = 47, NY = 41, NX = 33 };

static inline double field_value(size_t z, size_t y, size_t x) {
  return (double)(z * 10000 + y * 100 + x) + 0.25;
}

struct block {
  size_t start[3], count[3];
};

/* Of one rank, if the box is cut into cuts[0] by cuts[1] by cuts[2]. */
static inline struct block block_of(int rank, const int cuts[3]) {
  const size_t extent[3] = {NZ, NY, NX};
  struct block block;
  for (int d = 2; d >= 0; --d) {
    const size_t at = (size_t)(rank % cuts[d]), n = (size_t)cuts[d];
    block.start[d] = extent[d] * at / n;
    block.count[d] = extent[d] * (at + 1) / n - block.start[d];
    rank /= cuts[d];
  }
  return block;
}

/* As it is written: in as many directions as there are ranks for. */
static inline struct block writers_block(int rank, int ranks) {
  int cuts[3] = {0, 0, 0};
  MPI_Dims_create(ranks, 3, cuts);
  return block_of(rank, cuts);
}

/* As it is read back: across. */
static inline struct block readers_block(int rank, int ranks) {
  const int cuts[3] = {1, 1, ranks};
  return block_of(rank, cuts);
}

static inline size_t block_size(const struct block* b) {
  return b->count[0] * b->count[1] * b->count[2];
}

static inline double* block_values(const struct block* b) {
  double* values = (double*)malloc(block_size(b) * sizeof(double));
  double* at = values;
  for (size_t z = 0; z < b->count[0]; ++z)
    for (size_t y = 0; y < b->count[1]; ++y)
      for (size_t x = 0; x < b->count[2]; ++x)
        *at++ = field_value(b->start[0] + z, b->start[1] + y, b->start[2] + x);
  return values;
}

/* The job ends with what failed. */
#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                           \
    }                                                                         \
  } while (0)

/* The whole of a client: writes the file that its argument names, then reads it back. */
static int rank, ranks;

static inline int run_client(int argc, char** argv, void write_all(const char*),
                             void read_all(const char*)) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(argc == 2);
  write_all(argv[1]);
  read_all(argv[1]);
  MPI_Finalize();
  return 0;
}

static inline void check_block(const char* what, const struct block* b, const double* got) {
  double* wanted = block_values(b);
  for (size_t i = 0; i < block_size(b); ++i) {
    if (got[i] == wanted[i]) continue;
    fprintf(stderr, "%s: value %zu of the block is %g instead of %g\n", what, i, got[i], wanted[i]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  free(wanted);
}
