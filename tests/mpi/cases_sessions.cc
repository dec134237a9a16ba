// Sessions (MPI-4.0, 11.3), where the MPI has them.
#include <mpi.h>

#include "cases.h"

#if MPI_VERSION >= 4

namespace cases {
namespace {

struct Session {
  Session() {
    MPI_Group group;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "cases", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Group_free(&group);
  }
  ~Session() {
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
  }
  MPI_Session session;
  MPI_Comm comm;
};

}  // namespace

// In a program that has called MPI_Init.
void session_communicators() {
  const Session session;
  MPI_File file = open(session.comm, path("session"), kNew);
  int back = -1;
  MPI_Request request;
  MPI_File_iwrite_at_all(file, rank * MPI_Offset(sizeof rank), &rank, 1, MPI_INT, &request);
  check(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS, "a write of a session's file");
  MPI_File_sync(file);
  MPI_Barrier(session.comm);
  MPI_File_read_at_all(file, (1 - rank) * MPI_Offset(sizeof rank), &back, 1, MPI_INT,
                       MPI_STATUS_IGNORE);
  check(back == 1 - rank, "what another rank of a session wrote");
  check(MPI_File_close(&file) == MPI_SUCCESS, "the end of a session's file");
}

// And in one that has not, where MPI-IO is refused, by errors: also by MPICH itself.
int without_init() {
  const Session session;
  MPI_Comm_rank(session.comm, &rank);
  MPI_File file = MPI_FILE_NULL;
  check(MPI_File_open(session.comm, path("session").c_str(), kNew, MPI_INFO_NULL, &file) !=
                MPI_SUCCESS &&
            file == MPI_FILE_NULL,
        "a file without MPI_Init");
  check(MPI_File_delete(path("session").c_str(), MPI_INFO_NULL) != MPI_SUCCESS,
        "a file to be deleted without MPI_Init");
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, session.comm);
  return all != 0;
}

}  // namespace cases

#endif
