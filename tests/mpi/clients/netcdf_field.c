/* A netCDF-4 program like any other: a field in contiguous and chunked variables, written
 * independently and collectively, read back across. The argument is the file. */
#include <netcdf.h>
#include <netcdf_par.h>

#include "field.h"

#define NC(call)                                                                         \
  do {                                                                                   \
    const int code_ = (call);                                                            \
    if (code_ != NC_NOERR) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, nc_strerror(code_)); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
    }                                                                                    \
  } while (0)

struct variable {
  const char* name;
  int chunked, access;
};

static const struct variable variables[] = {
    {"contiguous_independent", 0, NC_INDEPENDENT},
    {"contiguous_collective", 0, NC_COLLECTIVE},
    {"chunked_independent", 1, NC_INDEPENDENT},
    {"chunked_collective", 1, NC_COLLECTIVE},
};
enum { kVariables = sizeof variables / sizeof *variables };

static void define(int file, const struct variable* v, const int* dims, int* var) {
  const size_t chunk[3] = {10, 16, 8};
  NC(nc_def_var(file, v->name, NC_DOUBLE, 3, dims, var));
  NC(nc_def_var_chunking(file, *var, v->chunked ? NC_CHUNKED : NC_CONTIGUOUS,
                         v->chunked ? chunk : NULL));
  NC(nc_def_var_fill(file, *var, NC_NOFILL, NULL));
}

static void write_all(const char* path) {
  int file, dims[3], vars[kVariables];
  NC(nc_create_par(path, NC_NETCDF4 | NC_CLOBBER, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
  NC(nc_def_dim(file, "z", NZ, &dims[0]));
  NC(nc_def_dim(file, "y", NY, &dims[1]));
  NC(nc_def_dim(file, "x", NX, &dims[2]));
  for (int i = 0; i < kVariables; ++i) define(file, &variables[i], dims, &vars[i]);
  NC(nc_enddef(file));
  const struct block b = writers_block(rank, ranks);
  double* values = block_values(&b);
  for (int i = 0; i < kVariables; ++i) {
    NC(nc_var_par_access(file, vars[i], variables[i].access));
    NC(nc_put_vara_double(file, vars[i], b.start, b.count, values));
  }
  NC(nc_close(file));
  free(values);
}

static void read_all(const char* path) {
  int file, var;
  NC(nc_open_par(path, NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
  const struct block b = readers_block(rank, ranks);
  double* values = malloc(block_size(&b) * sizeof(double));
  for (int i = 0; i < kVariables; ++i) {
    NC(nc_inq_varid(file, variables[i].name, &var));
    NC(nc_var_par_access(file, var, variables[i].access));
    NC(nc_get_vara_double(file, var, b.start, b.count, values));
    check_block(variables[i].name, &b, values);
  }
  NC(nc_close(file));
  free(values);
}

int main(int argc, char** argv) {
  return run_client(argc, argv, write_all, read_all);
}
