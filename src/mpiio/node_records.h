// NodeRecords: small records of ranks on one node that are to lie next to each other in a file, in
// memory that all of them map, so that one rank writes those of all (MPI_File_write_ordered).
//
// Plain bytes without pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/extents.h"
#include "core/result.h"

namespace forebay::mpiio {

class NodeRecords {
 public:
  static constexpr uint64_t kMostBytes = 16384;  // of one rank

  static uint64_t space(int ranks) { return static_cast<uint64_t>(ranks) * kMostBytes; }
  explicit NodeRecords(std::byte* space) : space_(space) {}

  // Where a rank leaves its record.
  std::byte* buffer(size_t rank) const { return space_ + rank * kMostBytes; }

  struct Record {
    Offset at;
    Length length;
    const std::byte* data = nullptr;
  };
  using Write = std::function<Result<uint64_t>(Extents file, Extents memory)>;
  // Touching ones by one call. An errno, if anything went wrong; one that fails takes no other with
  // it. After bad_alloc any of them may have been written.
  static int write(std::span<const Record> records, const Write& by);

 private:
  std::byte* const space_;
};

}  // namespace forebay::mpiio
