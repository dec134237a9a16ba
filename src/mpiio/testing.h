// Helpers of the tests of shared state.
#pragma once

#include <memory>
#include <vector>

#include "core/testing.h"
#include "mpiio/arbiter.h"
#include "mpiio/arbiter_client.h"
#include "mpiio/node_state.h"

namespace forebay::mpiio {

inline constexpr Slot kPointer = Slot::shared_pointer;

inline Extents range(uint64_t offset, uint64_t length) {
  return Extents(ext(offset, length));
}

inline std::unique_ptr<Arbiter> near_arbiter() {
  return Arbiter::start({.reach = Arbiter::Reach::loopback}).value();
}

// A file and as many ranks as one likes, all in this process.
struct NodeWorld {
  std::unique_ptr<NodeMemory> memory = std::make_unique<NodeMemory>();
  std::unique_ptr<SharedState> rank() { return std::make_unique<NodeState>(*memory); }
};
struct ArbiterWorld {
  std::unique_ptr<Arbiter> arbiter = near_arbiter();
  Invitation invitation = arbiter->open_file();
  std::unique_ptr<SharedState> rank() { return ArbiterClient::connect(invitation).value(); }
};

}  // namespace forebay::mpiio
