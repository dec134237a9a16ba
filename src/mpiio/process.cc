#include "mpiio/process.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mpiio/open.h"

namespace forebay::mpiio {
namespace {

std::atomic<bool> has_started{false};

bool asked_to_explain() {
  const char* text = std::getenv("FOREBAY_EXPLAIN");
  return text && *text && std::strcmp(text, "0") != 0;
}

}  // namespace

Process& Process::get() {
  static Process* const process = [] {
    auto* made = new Process;
    watch_for_the_end();
    has_started.store(true);
    return made;
  }();
  return *process;
}

bool Process::started() {
  return has_started.load(std::memory_order_acquire);
}

bool Process::possible() {
  int begun = started(), over = 0;
  if (!begun) PMPI_Initialized(&begun);
  PMPI_Finalized(&over);
  return begun && !over;
}

std::shared_ptr<File> Process::file(MPI_File handle) {
  return possible() ? get().files_.find(handle) : nullptr;
}

Process::Process() : caller_(this_process_caller()), explains_(asked_to_explain()) {
  auto decoder = Decoder::make();
  FOREBAY_ASSERT(decoder.has_value(), "MPI-IO is used while MPI is not initialized");
  decoder_ = std::move(*decoder);
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
  lobbies_.leave();
  places_.leave();
  arbiter_.reset();
}

}  // namespace forebay::mpiio
