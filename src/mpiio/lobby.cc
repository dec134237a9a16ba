#include "mpiio/lobby.h"

#include <utility>

namespace forebay::mpiio {

Lobby::~Lobby() {
  if (kept_) PMPI_Comm_free(&kept_.comm);
}

Lobby::Kept Lobby::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(kept_, {});
}

void Lobby::give_back(Kept kept) {
  std::lock_guard lock(mutex_);
  kept_ = std::move(kept);
}

Lobbies::Lobbies() {
  const int rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, drop, &key_, this);
  FOREBAY_ASSERT(rc == MPI_SUCCESS, "MPI_Comm_create_keyval");
}

std::shared_ptr<Lobby> Lobbies::find(MPI_Comm comm) {
  void* lobby = nullptr;
  int there = 0;
  PMPI_Comm_get_attr(comm, key_, &lobby, &there);
  std::lock_guard lock(mutex_);
  const auto found = there ? lobbies_.find(lobby) : lobbies_.end();
  return found == lobbies_.end() ? nullptr : found->second;
}

std::shared_ptr<Lobby> Lobbies::make(MPI_Comm comm, Meeting& meeting) {
  auto lobby = std::make_shared<Lobby>(meeting);
  {
    std::lock_guard lock(mutex_);
    lobbies_[lobby.get()] = lobby;
  }
  // If one rank had none, the others would wait for it at the next open.
  const int rc = PMPI_Comm_set_attr(comm, key_, lobby.get());
  FOREBAY_ASSERT(rc == MPI_SUCCESS, "MPI_Comm_set_attr");
  return lobby;
}

void Lobbies::leave() {
  decltype(lobbies_) all;  // go without the lock
  std::lock_guard lock(mutex_);
  all.swap(lobbies_);
}

int Lobbies::drop(MPI_Comm, int, void* lobby, void* lobbies) {
  Lobbies& me = *static_cast<Lobbies*>(lobbies);
  decltype(lobbies_)::node_type dropped;  // goes without the lock
  std::lock_guard lock(me.mutex_);
  dropped = me.lobbies_.extract(lobby);
  return MPI_SUCCESS;
}

}  // namespace forebay::mpiio
