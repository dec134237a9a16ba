// Process: what the library has one of in each process. The library's functions are C functions
// that MPI programs call, so somebody has to be there before any of them; this is all of it.
//
// Made at the first use, after MPI_Init. When MPI is finalized, files that are still open are
// closed, with a line that says so: after the program's own attributes of MPI_COMM_SELF are gone,
// since libraries close files with these. The object itself is never destroyed: a program may end
// with threads still running.
#pragma once

#include <memory>

#include "mpiio/arbiter.h"
#include "mpiio/area_pool.h"
#include "mpiio/background.h"
#include "mpiio/decode.h"
#include "mpiio/files.h"
#include "mpiio/handlers.h"
#include "mpiio/lobby.h"
#include "mpiio/requests.h"
#include "mpiio/whereabouts.h"

namespace forebay::mpiio {

class Process {
 public:
  static Process& get();  // once it was possible()
  static bool started();
  // Not in a program that has sessions only: without MPI_Init much of what we need is not there
  // (MPI_COMM_SELF, and the moment when MPI ends).
  static bool possible();
  // From the first call on. MPI is there.
  static void watch_for_the_end();
  // The open file that a handle names, or null.
  static std::shared_ptr<File> file(MPI_File handle);

  Decoder& decoder() { return *decoder_; }
  Background& background() { return background_; }
  Requests& requests() { return requests_; }
  Handlers& handlers() { return handlers_; }
  Representations& representations() { return representations_; }
  Places& places() { return places_; }
  Files& files() { return files_; }
  Lobbies& lobbies() { return lobbies_; }
  AreaPool& areas() { return areas_; }
  const CallerRef& caller() const { return caller_; }
  // Of this process, as rank 0 of some files. Made at the first call.
  Result<Arbiter*> arbiter();

  MPI_Errhandler default_handler() const { return default_handler_.load(); }
  void set_default_handler(MPI_Errhandler handler) { default_handler_.store(handler); }

  bool explains() const { return explains_; }  // FOREBAY_EXPLAIN

  // Lets MPI go on, for who waits for something else: others may wait for a message of ours, of the
  // program's or this library's, that MPI sends only while we call it.
  void let_mpi_work();

 private:
  explicit Process(std::unique_ptr<Decoder> decoder);
  static bool start();
  static int at_the_end(MPI_Comm, int, void*, void*);
  void end();

  const std::unique_ptr<Decoder> decoder_;
  Handlers handlers_;
  Representations representations_;
  Places places_;
  Files files_;
  Lobbies lobbies_;
  AreaPool areas_;
  Requests requests_;
  CallerRef caller_;
  std::mutex mutex_;
  std::unique_ptr<Arbiter> arbiter_;
  std::atomic<MPI_Request> endless_;
  std::atomic<MPI_Errhandler> default_handler_{MPI_ERRORS_RETURN};
  const bool explains_;
  Background background_;
};

void progress();  // Process::let_mpi_work()

}  // namespace forebay::mpiio
