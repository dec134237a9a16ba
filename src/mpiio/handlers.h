// Error handlers of files: MPI's own objects, so that the program can free them, and what they do,
// which MPI does not tell.
//
// MPI counts references: a handler that is set on a file outlives its creator's free, and
// get_errhandler gives a reference of its own. So we count as well, and MPI_Errhandler_free of one
// of ours lets the real object go only with its last reference. Predefined ones are never let go:
// MPI counts their references too, and does not know of those that a file's get_errhandler gave.
// Any thread.
#pragma once

#include <map>
#include <mutex>

#include "mpiio/mpi_api.h"

namespace forebay::mpiio {

class Handlers {
 public:
  using FortranFunction = void(MPI_Fint* file, MPI_Fint* code);

  int create(MPI_File_errhandler_function* function, MPI_Errhandler* handler);
  int create_fortran(FortranFunction* function, MPI_Errhandler* handler);

  static bool predefined(MPI_Errhandler handler);
  bool known(MPI_Errhandler handler);    // one of ours, or predefined
  void acquire(MPI_Errhandler handler);  // one more reference
  // One less; true if it was the last, and the real object must go. False for those of others.
  enum class Freed { not_ours, kept, last };
  Freed release(MPI_Errhandler handler);
  void release_for_good(MPI_Errhandler handler);  // and frees the real object with the last one

  // Runs it, for a file (or MPI_FILE_NULL). Returns the code that the call returns, if it returns.
  int run(MPI_Errhandler handler, MPI_File file, MPI_Fint number, int code, const char* text);

 private:
  struct Made {
    MPI_File_errhandler_function* function = nullptr;
    FortranFunction* fortran = nullptr;
    int references = 1;
  };
  int remember(Made made, MPI_Errhandler* handler);

  std::mutex mutex_;
  std::map<MPI_Errhandler, Made> made_;
};

}  // namespace forebay::mpiio
