// Rules of error handlers.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <csignal>
#include <vector>

#include "cases.h"

namespace cases {
namespace {

int handled = 0;
void count_errors(MPI_File*, int*, ...) {
  ++handled;
}

std::jmp_buf away;
void leave(MPI_File*, int*, ...) {
  ++handled;
  std::longjmp(away, 1);
}

// Does it end by the handler?
template <class Call>
bool leaves(Call&& call) {
  if (setjmp(away) != 0) return true;
  call();
  return false;
}

constexpr int kRequests = 8;
using All = std::array<MPI_Request, kRequests>;

// Writes beyond the limit on the size of files.
bool failed_writes_leave(MPI_File file, All& requests) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  ::setrlimit(RLIMIT_FSIZE, &small);
  static const std::vector<char> data(100000);
  for (MPI_Request& one : requests)
    MPI_File_iwrite_at(file, 0, data.data(), 100000, MPI_BYTE, &one);
  const bool left = leaves([&] { MPI_Waitall(kRequests, requests.data(), MPI_STATUSES_IGNORE); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  return left;
}

// To this rank itself. MPI may give them the handles of requests that are over.
void messages(All& requests) {
  std::array<int, kRequests> numbers{};
  for (int i = 0; i < kRequests; i += 2) {
    MPI_Irecv(&numbers[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
    MPI_Isend(&i, 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i + 1]);
    MPI_Waitall(2, &requests[i], MPI_STATUSES_IGNORE);
  }
}

}  // namespace

void handlers() {
  MPI_Errhandler handler, again;
  MPI_File_create_errhandler(count_errors, &handler);
  MPI_File file = open(MPI_COMM_SELF, path(rank ? "handled1" : "handled0"), kNew);
  MPI_File_set_errhandler(file, handler);
  MPI_Errhandler_free(&handler);
  check(MPI_File_seek(file, -1, MPI_SEEK_SET) != MPI_SUCCESS && handled == 1,
        "a handler that its maker has freed");
  MPI_File_get_errhandler(file, &again);
  MPI_Errhandler_free(&again);
  MPI_File_close(&file);
  MPI_File_close(&file);  // not a file any more, and not a crash
  MPI_File_get_errhandler(MPI_FILE_NULL, &again);
  check(again == MPI_ERRORS_RETURN, "the default handler returns errors");
}

// A handler need not return. What failed is over all the same.
void handlers_that_leave() {
  const std::string name = path(rank ? "left1" : "left0");
  MPI_File file = open(MPI_COMM_SELF, name, kNew | MPI_MODE_DELETE_ON_CLOSE);
  MPI_Errhandler handler;
  MPI_File_create_errhandler(leave, &handler);
  MPI_File_set_errhandler(file, handler);
  MPI_Errhandler_free(&handler);
  handled = 0;
  All requests;
  check(failed_writes_leave(file, requests) && handled == 1, "the first failed request's handler");
  check(std::ranges::count(requests, MPI_REQUEST_NULL) == kRequests, "all requests are over");
  for (int times = 0; times < 50; ++times) messages(requests);
  check(handled == 1, "errors of requests that are over");
  ::unlink(name.c_str());
  check(leaves([&] { MPI_File_close(&file); }) && handled == 2, "a failed close");
  check(file == MPI_FILE_NULL, "its file is closed");
}

}  // namespace cases
