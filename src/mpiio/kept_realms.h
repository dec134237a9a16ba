// KeptRealms: the realm cache (realm_cache.h) of an open file as one of its ranks uses it. There is
// one if the file's ranks are on one node and its realms persist; then every data call goes through
// it, so that whatever a rank wrote is seen by all, whether it has reached the file or not.
//
// Threads: data calls by any; the rest on the program's thread.
#pragma once

#include <memory>

#include "core/op.h"
#include "mpiio/fault.h"
#include "mpiio/realm_cache.h"
#include "mpiio/shared_memory.h"

namespace forebay::mpiio {

struct File;

class KeptRealms : public Backing {
 public:
  // By all ranks. `part`: which one this rank flushes; -1: none. Null, on all, if there is no
  // memory for it.
  static std::unique_ptr<KeptRealms> make(const File& file, const CacheShape& shape, int part);

  // Op::read or Op::write.
  Result<uint64_t> move(Op op, const Extents& where, const Extents& memory, Allocate allocate);

  // By all ranks: whatever any of them wrote before is in the file. The worst of what they met.
  Fault flush();
  // The same, and what others wrote to the file will be seen.
  Fault settle();
  // By one rank, without MPI: what it has written itself is in the file.
  Result<void> rescue() { return cache_.flush(*this); }
  void truncate(Length size) { cache_.truncate(size); }  // by one rank
  uint64_t end() const { return cache_.dirty_end().value; }
  uint64_t realm_size() const { return cache_.shape().realm_size; }

 private:
  KeptRealms(const File& file, SharedMemory memory, int part)
      : file_(file), memory_(std::move(memory)), cache_(memory_.data()), part_(part) {}

  Result<uint64_t> read(Extents file, Extents memory) override;
  Result<void> write(Extents file, Extents memory) override;
  Result<uint64_t> size() override;

  const File& file_;
  const SharedMemory memory_;
  RealmCache cache_;
  const int part_;
};

}  // namespace forebay::mpiio
