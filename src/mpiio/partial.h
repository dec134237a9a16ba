// What the end of a file leaves of the last item of a read, in a representation that converts: the
// elements that are there whole. MPI converts whole items only, so the item is converted aside, and
// of it goes to the program what was read. On the program's thread.
#pragma once

#include <span>

#include "mpiio/decode.h"
#include "mpiio/representation.h"

namespace forebay::mpiio {

// Of the first `bytes` of one item of `type` in the file: the bytes in memory of the elements that
// lie in them whole.
Result<uint64_t> whole_elements(Decoder& decoder, MPI_Datatype type,
                                const Representation& representation, uint64_t bytes);

// Puts the first `length` bytes of an item into the program's memory. `item`: as it lies in the
// file, whatever is missing being anything.
Fault decode_part(Decoder& decoder, const Representation& representation,
                  std::span<const std::byte> item, const Buffer& one, uint64_t length);

}  // namespace forebay::mpiio
