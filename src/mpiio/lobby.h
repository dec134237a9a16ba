// Lobby: what a file leaves to the next one on the same communicator when it is closed: our
// duplicate of the communicator, and the Meeting with its memory. To make these takes most of the
// time of an open. Only where all ranks are on one node.
//
// It is an attribute of the program's communicator, of all ranks or of none, and goes with it. One
// file at a time has what is in it; others that are open meanwhile have their own. As one thread
// may close a file while another opens the next, a rank may find it empty and another not: so they
// meet at the entrance, in memory that is no file's, before they use it.
//
// Threads: any; MPI forbids two opens at once on a communicator of several ranks, and on one of a
// single rank nobody needs the entrance.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "mpiio/meeting.h"
#include "mpiio/mpi_api.h"

namespace forebay::mpiio {

class Lobby {
 public:
  struct Kept {
    MPI_Comm comm = MPI_COMM_NULL;
    std::unique_ptr<Meeting> meeting;
    explicit operator bool() const { return meeting != nullptr; }
  };

  // Empty: a file has what will be in it, with this meeting.
  explicit Lobby(Meeting& meeting) : entrance_(meeting.entrance()) {}
  ~Lobby();
  Lobby(const Lobby&) = delete;

  Kept take();
  void give_back(Kept kept);
  Gathering& entrance() { return entrance_; }

 private:
  Gathering& entrance_;
  std::mutex mutex_;
  Kept kept_;
};

// Those of a process.
class Lobbies {
 public:
  Lobbies();
  Lobbies(const Lobbies&) = delete;

  // Null: no file was opened on it yet.
  std::shared_ptr<Lobby> find(MPI_Comm comm);
  std::shared_ptr<Lobby> make(MPI_Comm comm, Meeting& meeting);
  // When MPI is about to end.
  void leave();

 private:
  static int drop(MPI_Comm, int, void* lobby, void* lobbies);

  int key_ = MPI_KEYVAL_INVALID;
  std::mutex mutex_;
  std::map<void*, std::shared_ptr<Lobby>> lobbies_;  // by their address, which is the attribute
};

}  // namespace forebay::mpiio
