// Error handlers of files: the calls. MPI itself calls some of these late, when MPI is finalized
// and there are no files of ours any more.
#include <fmt/format.h>

#include <cstring>

#include "mpiio/process.h"
#include "mpiio/report.h"

using namespace forebay::mpiio;

namespace {

bool too_late() {
  int over = 0;
  PMPI_Finalized(&over);
  return over && !Process::started();
}

// The file that a handle names, or nothing for MPI_FILE_NULL; false: it names none.
bool find(MPI_File handle, std::shared_ptr<File>& file) {
  if (handle == MPI_FILE_NULL) return Process::possible();
  file = Process::file(handle);
  return file != nullptr;
}

}  // namespace

extern "C" {

int MPI_File_create_errhandler(MPI_File_errhandler_function* function, MPI_Errhandler* handler) {
  if (!Process::possible()) return report_no_mpi("MPI_File_create_errhandler");
  return Process::get().handlers().create(function, handler);
}

int MPI_File_set_errhandler(MPI_File fh, MPI_Errhandler handler) {
  if (too_late()) return MPI_SUCCESS;
  constexpr const char* kName = "MPI_File_set_errhandler";
  std::shared_ptr<File> file;
  if (!find(fh, file)) return report_no_file(kName);
  Handlers& handlers = Process::get().handlers();
  if (!handlers.known(handler))
    return report(file.get(), kName, {MPI_ERR_ARG, "this is no error handler of files"});
  handlers.acquire(handler);
  const MPI_Errhandler before = file ? file->handler : Process::get().default_handler();
  if (file)
    file->handler = handler;
  else
    Process::get().set_default_handler(handler);
  handlers.release_for_good(before);
  return MPI_SUCCESS;
}

int MPI_File_get_errhandler(MPI_File fh, MPI_Errhandler* handler) {
  std::shared_ptr<File> file;
  if (!find(fh, file)) return report_no_file("MPI_File_get_errhandler");
  *handler = file ? file->handler : Process::get().default_handler();
  Process::get().handlers().acquire(*handler);
  return MPI_SUCCESS;
}

int MPI_File_call_errhandler(MPI_File fh, int code) {
  std::shared_ptr<File> file;
  if (!find(fh, file)) return report_no_file("MPI_File_call_errhandler");
  const MPI_Errhandler handler = file ? file->handler : Process::get().default_handler();
  Process::get().handlers().run(handler, fh, file ? file->number : 0, code,
                                "MPI_File_call_errhandler");
  return MPI_SUCCESS;
}

int MPI_Errhandler_free(MPI_Errhandler* handler) {
  static auto* const real = next<int(MPI_Errhandler*)>("PMPI_Errhandler_free");
  if (!Process::started() || !handler) return real(handler);
  switch (Process::get().handlers().release(*handler)) {
    case Handlers::Freed::kept:
      *handler = MPI_ERRHANDLER_NULL;
      return MPI_SUCCESS;
    default:
      return real(handler);
  }
}

// MPI's text for the class, and what was wrong when it was last reported to this thread: programs
// and libraries print this and nothing else.
int MPI_Error_string(int code, char* string, int* length) {
  static auto* const real = next<int(int, char*, int*)>("PMPI_Error_string");
  if (int result = real(code, string, length)) return result;
  const std::string more = last_report(code);
  if (more.empty()) return MPI_SUCCESS;
  const std::string all = fmt::format("{} ({})", string, more).substr(0, MPI_MAX_ERROR_STRING - 1);
  std::strcpy(string, all.c_str());
  *length = static_cast<int>(all.size());
  return MPI_SUCCESS;
}

// Fortran's functions get the file's number. The bindings of Open MPI make such handlers by an
// internal function, those of MPICH as if they were C's: so theirs are ours.
void forebay_create_errhandler_fortran(Handlers::FortranFunction* function, MPI_Fint* handler,
                                       MPI_Fint* code) {
  MPI_Errhandler made = MPI_ERRHANDLER_NULL;
  const int result = Process::possible() ? Process::get().handlers().create_fortran(function, &made)
                                         : report_no_mpi("MPI_File_create_errhandler");
  if (result == MPI_SUCCESS) *handler = PMPI_Errhandler_c2f(made);
  if (code) *code = result;
}

#define FORTRAN_NAME(name)                                    \
  void name(Handlers::FortranFunction*, MPI_Fint*, MPI_Fint*) \
      __attribute__((alias("forebay_create_errhandler_fortran")))
FORTRAN_NAME(mpi_file_create_errhandler_);
FORTRAN_NAME(mpi_file_create_errhandler__);
FORTRAN_NAME(mpi_file_create_errhandler);
FORTRAN_NAME(MPI_FILE_CREATE_ERRHANDLER);
FORTRAN_NAME(pmpi_file_create_errhandler_);
FORTRAN_NAME(pmpi_file_create_errhandler__);
FORTRAN_NAME(pmpi_file_create_errhandler);
FORTRAN_NAME(PMPI_FILE_CREATE_ERRHANDLER);
#ifdef OPEN_MPI
FORTRAN_NAME(ompi_file_create_errhandler_f);
#endif
}

FOREBAY_ALSO_PMPI(File_create_errhandler);
FOREBAY_ALSO_PMPI(File_set_errhandler);
FOREBAY_ALSO_PMPI(File_get_errhandler);
FOREBAY_ALSO_PMPI(File_call_errhandler);
FOREBAY_ALSO_PMPI(Errhandler_free);
FOREBAY_ALSO_PMPI(Error_string);
