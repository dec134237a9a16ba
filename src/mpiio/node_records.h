// NodeRecords: small records of ranks on one node that are to lie next to each other in a file, in
// memory that all of them map, so that one rank writes those of others too (ordered.h,
// record_writes.h).
//
// Plain bytes without pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/extents.h"
#include "core/result.h"
#include "plan/tiled_map.h"

namespace forebay::mpiio {

class NodeRecords {
 public:
  static constexpr uint64_t kMostBytes = 16384;  // of one rank

  static uint64_t space(int ranks) { return static_cast<uint64_t>(ranks) * kMostBytes; }
  explicit NodeRecords(std::byte* space) : space_(space) {}

  // Where a rank leaves its record.
  std::byte* buffer(size_t rank) const { return space_ + rank * kMostBytes; }
  void fill(size_t rank, const plan::TiledMap& memory) const;

  struct Record {
    Offset at;
    Length length;
    const std::byte* data = nullptr;
  };
  using Write = std::function<Result<uint64_t>(Extents file, Extents memory)>;
  // Whose record this is.
  int rank_of(const Record& record) const {
    return static_cast<int>(static_cast<uint64_t>(record.data - space_) / kMostBytes);
  }

  // How many of the first touch.
  static size_t length_of_run(std::span<const Record> records);
  // Those, by one call. An errno, if anything went wrong. After bad_alloc too any of them may have
  // been written.
  static int write_run(std::span<const Record> run, const Write& by);
  // All of them in runs; a record that fails takes no other with it.
  static int write(std::span<const Record> records, const Write& by);

 private:
  std::byte* const space_;
};

}  // namespace forebay::mpiio
