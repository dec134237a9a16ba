// external32 (MPI-4.0, 14.5.2): values in a file as every MPI writes them, whatever the machine:
// big-endian, two's complement, IEEE floating point of 4, 8 or 16 bytes, and sizes of the
// standard's own (MPI_LONG has 4 bytes, MPI_WCHAR 2), one after the other without gaps. Those of
// MPI_Pack_external are no help: MPICH has none for pairs, Open MPI packs what its own sizes deny,
// and both cut off what does not fit.
//
// No MPI here; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/result.h"

namespace forebay::mpiio {

struct ExternalForm {
  enum class Kind : uint8_t {
    integer,      // signed, two's complement
    natural,      // without a sign
    swapped,      // the same bytes in the other order: IEEE floating point on both sides
    long_double,  // the C type of this machine on one side, 16 bytes on the other
  };
  Kind kind = Kind::natural;
  uint32_t native = 1, external = 1;  // bytes of a part
  uint32_t parts = 1;                 // two of a complex number

  uint64_t size_in_memory() const { return uint64_t{native} * parts; }
  uint64_t size_in_file() const { return uint64_t{external} * parts; }
};

// `count` elements. ERANGE if one is beyond what the other side can say; those before it are
// converted. Neither side needs to be aligned.
Result<void> to_external(const ExternalForm& form, const std::byte* memory, std::byte* file,
                         uint64_t count);
Result<void> from_external(const ExternalForm& form, const std::byte* file, std::byte* memory,
                           uint64_t count);

}  // namespace forebay::mpiio
