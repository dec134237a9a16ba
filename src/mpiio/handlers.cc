#include "mpiio/handlers.h"

#include <cstdio>

namespace forebay::mpiio {
namespace {

// What the real object does if MPI itself should ever run it, which it has no file for.
void unused(MPI_File*, int*, ...) {}

}  // namespace

int Handlers::remember(Made made, MPI_Errhandler* handler) {
  static auto* const real =
      next<int(MPI_File_errhandler_function*, MPI_Errhandler*)>("PMPI_File_create_errhandler");
  if (int code = real(made.function ? made.function : unused, handler)) return code;
  std::lock_guard lock(mutex_);
  made_[*handler] = made;
  return MPI_SUCCESS;
}

int Handlers::create(MPI_File_errhandler_function* function, MPI_Errhandler* handler) {
  return remember({.function = function}, handler);
}

int Handlers::create_fortran(FortranFunction* function, MPI_Errhandler* handler) {
  return remember({.fortran = function}, handler);
}

bool Handlers::predefined(MPI_Errhandler handler) {
#ifdef MPI_ERRORS_ABORT
  if (handler == MPI_ERRORS_ABORT) return true;
#endif
  return handler == MPI_ERRORS_RETURN || handler == MPI_ERRORS_ARE_FATAL;
}

bool Handlers::known(MPI_Errhandler handler) {
  if (predefined(handler)) return true;
  std::lock_guard lock(mutex_);
  return made_.contains(handler);
}

void Handlers::acquire(MPI_Errhandler handler) {
  std::lock_guard lock(mutex_);
  if (auto it = made_.find(handler); it != made_.end()) ++it->second.references;
}

Handlers::Freed Handlers::release(MPI_Errhandler handler) {
  if (predefined(handler)) return Freed::kept;
  std::lock_guard lock(mutex_);
  auto it = made_.find(handler);
  if (it == made_.end()) return Freed::not_ours;
  if (--it->second.references > 0) return Freed::kept;
  made_.erase(it);
  return Freed::last;
}

void Handlers::release_for_good(MPI_Errhandler handler) {
  static auto* const real = next<int(MPI_Errhandler*)>("PMPI_Errhandler_free");
  if (release(handler) == Freed::last) real(&handler);
}

int Handlers::run(MPI_Errhandler handler, MPI_File file, MPI_Fint number, int code,
                  const char* text) {
  Made made;
  {
    std::lock_guard lock(mutex_);
    if (auto it = made_.find(handler); it != made_.end()) made = it->second;
  }
  if (made.function) {
    made.function(&file, &code);
  } else if (made.fortran) {
    MPI_Fint fortran_code = code;
    made.fortran(&number, &fortran_code);
  } else if (handler != MPI_ERRORS_RETURN) {
    std::fprintf(stderr, "forebay: %s; the file's error handler ends the program\n", text);
    PMPI_Abort(MPI_COMM_WORLD, code);
  }
  return code;
}

}  // namespace forebay::mpiio
