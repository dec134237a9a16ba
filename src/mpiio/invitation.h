// Invitation: all that a rank needs to find an Arbiter and be believed: addresses, a key, and which
// of its files is meant. Plain bytes, to be broadcast as they are by whoever owns the job's own,
// trusted way (MPI_Bcast of sizeof(Invitation) MPI_BYTE). It holds a secret: not for logs or files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace forebay::mpiio {

struct Invitation {
  static constexpr size_t kHosts = 8;
  using Host = std::array<char, 48>;  // a numeric address, as text; empty: none

  std::array<uint8_t, 32> key{};
  uint64_t file = 0;
  uint16_t port = 0;
  std::array<Host, kHosts> hosts{};
};
static_assert(std::is_trivially_copyable_v<Invitation> && std::is_standard_layout_v<Invitation>);

}  // namespace forebay::mpiio
