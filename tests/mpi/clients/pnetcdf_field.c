/* A PnetCDF program like any other: a field in variables written by blocking, nonblocking and list
 * calls, collectively and independently, read back across. The argument is the file. */
#include <pnetcdf.h>
#include <string.h>

#include "field.h"

#define NC(call)                                                                            \
  do {                                                                                      \
    const int code_ = (call);                                                               \
    if (code_ != NC_NOERR) {                                                                \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncmpi_strerror(code_)); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                         \
    }                                                                                       \
  } while (0)

struct place {
  MPI_Offset start[3], count[3];
};

static struct place place_of(const struct block* b) {
  struct place p;
  for (int d = 0; d < 3; ++d)
    p.start[d] = (MPI_Offset)b->start[d], p.count[d] = (MPI_Offset)b->count[d];
  return p;
}

static void put_vara_all(int file, int var, const struct block* b, const double* values) {
  const struct place p = place_of(b);
  NC(ncmpi_put_vara_double_all(file, var, p.start, p.count, values));
}

static void put_vara(int file, int var, const struct block* b, const double* values) {
  const struct place p = place_of(b);
  NC(ncmpi_begin_indep_data(file));
  NC(ncmpi_put_vara_double(file, var, p.start, p.count, values));
  NC(ncmpi_end_indep_data(file));
}

/* The planes of the block, each a request of the list. */
static void put_varn_all(int file, int var, const struct block* b, const double* values) {
  const int planes = (int)b->count[0];
  struct place* p = malloc((size_t)planes * sizeof *p);
  MPI_Offset** starts = malloc((size_t)planes * sizeof *starts);
  MPI_Offset** counts = malloc((size_t)planes * sizeof *counts);
  for (int i = 0; i < planes; ++i) {
    p[i] = place_of(b);
    p[i].start[0] += i;
    p[i].count[0] = 1;
    starts[i] = p[i].start;
    counts[i] = p[i].count;
  }
  NC(ncmpi_put_varn_double_all(file, var, planes, starts, counts, values));
  free(counts), free(starts), free(p);
}

/* Many requests, one collective write. */
static void iput_vara(int file, int var, const struct block* b, const double* values) {
  const int planes = (int)b->count[0];
  const size_t plane = b->count[1] * b->count[2];
  int *requests = malloc((size_t)planes * sizeof(int)),
      *codes = malloc((size_t)planes * sizeof(int));
  for (int i = 0; i < planes; ++i) {
    struct place p = place_of(b);
    p.start[0] += i;
    p.count[0] = 1;
    NC(ncmpi_iput_vara_double(file, var, p.start, p.count, values + (size_t)i * plane,
                              &requests[i]));
  }
  NC(ncmpi_wait_all(file, planes, requests, codes));
  for (int i = 0; i < planes; ++i) NC(codes[i]);
  free(codes), free(requests);
}

struct variable {
  const char* name;
  int record; /* its first dimension is the unlimited one */
  void (*put)(int, int, const struct block*, const double*);
};

static const struct variable variables[] = {
    {"vara_all", 0, put_vara_all},    {"vara", 0, put_vara},
    {"varn_all", 0, put_varn_all},    {"iput_vara", 0, iput_vara},
    {"records_all", 1, put_vara_all}, {"records_iput", 1, iput_vara},
};
enum { kVariables = sizeof variables / sizeof *variables };

static void write_all(const char* path) {
  int file, dims[3], record, vars[kVariables];
  NC(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
  NC(ncmpi_def_dim(file, "z", NZ, &dims[0]));
  NC(ncmpi_def_dim(file, "y", NY, &dims[1]));
  NC(ncmpi_def_dim(file, "x", NX, &dims[2]));
  NC(ncmpi_def_dim(file, "time", NC_UNLIMITED, &record));
  for (int i = 0; i < kVariables; ++i) {
    const int own[3] = {variables[i].record ? record : dims[0], dims[1], dims[2]};
    NC(ncmpi_def_var(file, variables[i].name, NC_DOUBLE, 3, own, &vars[i]));
  }
  NC(ncmpi_put_att_text(file, NC_GLOBAL, "title", 7, "a field"));
  NC(ncmpi_enddef(file));
  const struct block b = writers_block(rank, ranks);
  double* values = block_values(&b);
  for (int i = 0; i < kVariables; ++i) variables[i].put(file, vars[i], &b, values);
  NC(ncmpi_sync(file));
  NC(ncmpi_close(file));
  free(values);
}

static void read_all(const char* path) {
  int file, var, request, code;
  /* The prefix that ROMIO's users write. */
  char* prefixed = malloc(strlen(path) + 5);
  strcat(strcpy(prefixed, "ufs:"), path);
  NC(ncmpi_open(MPI_COMM_WORLD, prefixed, NC_NOWRITE, MPI_INFO_NULL, &file));
  const struct block b = readers_block(rank, ranks);
  const struct place p = place_of(&b);
  double* values = malloc(block_size(&b) * sizeof(double));
  for (int i = 0; i < kVariables; ++i) {
    NC(ncmpi_inq_varid(file, variables[i].name, &var));
    NC(ncmpi_get_vara_double_all(file, var, p.start, p.count, values));
    check_block(variables[i].name, &b, values);
    memset(values, 0, block_size(&b) * sizeof(double));
    NC(ncmpi_iget_vara_double(file, var, p.start, p.count, values, &request));
    NC(ncmpi_wait_all(file, 1, &request, &code));
    NC(code);
    check_block(variables[i].name, &b, values);
  }
  NC(ncmpi_close(file));
  free(values), free(prefixed);
}

int main(int argc, char** argv) {
  return run_client(argc, argv, write_all, read_all);
}
