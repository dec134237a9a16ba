#include "mpiio/report.h"

#include <fmt/format.h>

#include <cstdio>

#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

struct Said {
  int code = MPI_SUCCESS;
  std::string text;
};

// Error classes are all that a call returns, so the rest has to wait where the same thread finds
// it.
Said& last_said() {
  thread_local Said said;
  return said;
}

}  // namespace

std::string last_report(int code) {
  const Said& said = last_said();
  return said.code == code ? said.text : std::string();
}

int report(File* file, const char* call, const Fault& fault) {
  if (!fault) return MPI_SUCCESS;
  Process& process = Process::get();
  const std::string text =
      fmt::format("{}: {}{}", call, file ? file->name + ": " : std::string(), fault.text);
  last_said() = {fault.code, text};
  const MPI_Errhandler handler = file ? file->handler : process.default_handler();
  if (handler == MPI_ERRORS_RETURN && (process.explains() || !ordinary(fault.code)))
    std::fprintf(stderr, "forebay: %s\n", text.c_str());
  return process.handlers().run(handler, file ? reinterpret_cast<MPI_File>(file) : MPI_FILE_NULL,
                                file ? file->number : 0, fault.code, text.c_str());
}

int report_no_file(const char* call) {
  if (!Process::possible()) return report_no_mpi(call);
  return report(nullptr, call, {MPI_ERR_FILE, "this is no open file"});
}

int report_no_mpi(const char* call) {
  int begun = 0, over = 0;
  PMPI_Initialized(&begun);
  PMPI_Finalized(&over);
  const bool there = begun && !over;
  const int code = there ? MPI_ERR_OTHER : MPI_ERR_UNSUPPORTED_OPERATION;
  const std::string text = fmt::format(
      "{}: {}", call,
      there ? "MPI cannot make an attribute"
            : "MPI-IO is for programs that have called MPI_Init or MPI_Init_thread, also if they "
              "use sessions, and have not called MPI_Finalize");
  last_said() = {code, text};
  std::fprintf(stderr, "forebay: %s\n", text.c_str());
  return code;
}

}  // namespace forebay::mpiio
