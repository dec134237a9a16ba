#include "mpiio/process.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mpiio/open.h"

namespace forebay::mpiio {
namespace {

std::atomic<Process*> the_process{nullptr};

bool asked_to_explain() {
  const char* text = std::getenv("FOREBAY_EXPLAIN");
  return text && *text && std::strcmp(text, "0") != 0;
}

int nothing_to_say(void*, MPI_Status* status) {
  PMPI_Status_set_elements_x(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  return MPI_SUCCESS;
}
int nothing_to_free(void*) {
  return MPI_SUCCESS;
}
int nothing_to_cancel(void*, int) {
  return MPI_SUCCESS;
}

MPI_Request endless_request() {
  MPI_Request request = MPI_REQUEST_NULL;
  PMPI_Grequest_start(nothing_to_say, nothing_to_free, nothing_to_cancel, nullptr, &request);
  return request;
}

}  // namespace

Process& Process::get() {
  Process* const process = the_process.load(std::memory_order_acquire);
  FOREBAY_ASSERT(process != nullptr);
  return *process;
}

bool Process::started() {
  return the_process.load(std::memory_order_acquire) != nullptr;
}

bool Process::possible() {
  int over = 0;
  PMPI_Finalized(&over);
  return !over && (started() || start());
}

bool Process::start() {
  int begun = 0;
  PMPI_Initialized(&begun);
  if (!begun) return false;
  static std::mutex starting;
  std::lock_guard lock(starting);
  if (started()) return true;
  auto decoder = Decoder::make();
  if (!decoder) return false;
  the_process.store(new Process(std::move(*decoder)), std::memory_order_release);
  watch_for_the_end();
  return true;
}

std::shared_ptr<File> Process::file(MPI_File handle) {
  return possible() ? get().files_.find(handle) : nullptr;
}

Process::Process(std::unique_ptr<Decoder> decoder)
    : decoder_(std::move(decoder)),
      caller_(this_process_caller()),
      endless_(endless_request()),
      explains_(asked_to_explain()) {}

// Of all that MPI can be asked it goes on for certain if the answer is that something has not
// ended: messages that are there already are found without more (Open MPI), and those of a
// communicator of one process looked for in memory only (MPICH).
void Process::let_mpi_work() {
  int ended = 0;
  PMPI_Request_get_status(endless_.load(), &ended, MPI_STATUS_IGNORE);
}

void progress() {
  Process::get().let_mpi_work();
}

Result<Arbiter*> Process::arbiter() {
  std::lock_guard lock(mutex_);
  if (!arbiter_) {
    auto made = Arbiter::start();
    if (!made) return made.error();
    arbiter_ = std::move(*made);
  }
  return arbiter_.get();
}

// MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF, the last one first.
void Process::watch_for_the_end() {
  static const bool watching = [] {
    int key = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, nullptr);
    PMPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
    PMPI_Comm_free_keyval(&key);
    return true;
  }();
  (void)watching;
}

int Process::at_the_end(MPI_Comm, int, void*, void*) {
  if (started()) get().end();
  return MPI_SUCCESS;
}

void Process::end() {
  for (MPI_File handle : files_.all()) {
    auto file = files_.remove(handle);
    if (!file) continue;
    if (file->rank == 0)
      std::fprintf(stderr, "forebay: %s was still open at MPI_Finalize, and is closed now\n",
                   file->name.c_str());
    abandon(*file);
  }
  MPI_Request endless = endless_.exchange(MPI_REQUEST_NULL);
  PMPI_Grequest_complete(endless);
  PMPI_Request_free(&endless);
  lobbies_.leave();
  places_.leave();
  arbiter_.reset();
}

}  // namespace forebay::mpiio
