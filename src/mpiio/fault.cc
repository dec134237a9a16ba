#include "mpiio/fault.h"

namespace forebay::mpiio {

int class_of(int code) {
  switch (code) {
    case ENOENT:
      return MPI_ERR_NO_SUCH_FILE;
    case EEXIST:
      return MPI_ERR_FILE_EXISTS;
    case EACCES:
    case EPERM:
      return MPI_ERR_ACCESS;
    case EROFS:
      return MPI_ERR_READ_ONLY;
    case ENOSPC:
    case EFBIG:
      return MPI_ERR_NO_SPACE;
    case EDQUOT:
      return MPI_ERR_QUOTA;
    case ENAMETOOLONG:
    case ENOTDIR:
    case ELOOP:
    case EISDIR:
      return MPI_ERR_BAD_FILE;
    case ETXTBSY:
    case EBUSY:
      return MPI_ERR_FILE_IN_USE;
    case EINVAL:
    case EOVERFLOW:
      return MPI_ERR_ARG;
    case ENOTSUP:
      return MPI_ERR_UNSUPPORTED_OPERATION;
    case ENOMEM:
      return MPI_ERR_NO_MEM;
    default:
      return MPI_ERR_IO;
  }
}

Fault fault_of(const Error& error) {
  return {class_of(error.code()), error.message()};
}

bool ordinary(int code) {
  return code != MPI_ERR_IO && code != MPI_ERR_NO_SPACE && code != MPI_ERR_QUOTA &&
         code != MPI_ERR_NO_MEM && code != MPI_ERR_INTERN;
}

}  // namespace forebay::mpiio
