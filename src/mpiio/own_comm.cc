#include "mpiio/own_comm.h"

#include "mpiio/contents.h"

namespace forebay::mpiio {
namespace {

class ErrorsReturned {
 public:
  explicit ErrorsReturned(MPI_Comm comm) : comm_(comm) {
    int threads = MPI_THREAD_MULTIPLE;
    PMPI_Query_thread(&threads);
    if (threads == MPI_THREAD_MULTIPLE) return;
    PMPI_Comm_get_errhandler(comm, &before_);
    PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  ~ErrorsReturned() {
    if (before_ == MPI_ERRHANDLER_NULL) return;
    PMPI_Comm_set_errhandler(comm_, before_);
    PMPI_Errhandler_free(&before_);
  }
  ErrorsReturned(const ErrorsReturned&) = delete;

 private:
  const MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

}  // namespace

Result<MPI_Comm> own_comm(MPI_Comm comm) {
  MPI_Comm own = MPI_COMM_NULL;
  {
    const ErrorsReturned meanwhile(comm);
    if (auto ok = checked(PMPI_Comm_dup(comm, &own), "MPI_Comm_dup"); !ok)
      return std::move(ok).error();
  }
  PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  return own;
}

}  // namespace forebay::mpiio
