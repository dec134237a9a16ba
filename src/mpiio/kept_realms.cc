#include "mpiio/kept_realms.h"

#include "mpiio/file.h"

namespace forebay::mpiio {

std::unique_ptr<KeptRealms> KeptRealms::make(const File& file, const CacheShape& shape, int part) {
  SharedMemory memory;
  SharedMemory::Place place;
  if (file.rank == 0) {
    if (auto made = SharedMemory::make(RealmCache::space(shape))) {
      memory = std::move(*made);
      place = memory.place();
      RealmCache::create(memory.data(), shape);
    }
  }
  PMPI_Bcast(&place, sizeof place, MPI_BYTE, 0, file.comm);
  if (file.rank != 0 && place.bytes > 0)
    if (auto found = SharedMemory::attach(place)) memory = std::move(*found);
  const Fault mine = memory ? Fault{} : Fault{MPI_ERR_NO_MEM, "no memory that ranks share"};
  if (file.agree(mine)) return nullptr;
  return std::unique_ptr<KeptRealms>(new KeptRealms(file, std::move(memory), part));
}

Result<uint64_t> KeptRealms::move(Op op, const Extents& where, const Extents& memory,
                                  Allocate allocate) {
  if (op == Op::read) return cache_.read(*this, where, memory, allocate);
  if (auto ok = cache_.write(*this, where, memory, allocate); !ok) return ok.error();
  return where.total().value;
}

// Each aggregator writes its part back, when all have come: others may still be writing into it.
Fault KeptRealms::flush() {
  if (auto fault = file_.agree({})) return fault;
  Result<void> flushed;
  if (part_ >= 0) flushed = cache_.flush(*this, static_cast<uint32_t>(part_));
  return file_.agree(flushed ? Fault{} : fault_of(flushed.error()));
}

Fault KeptRealms::settle() {
  auto fault = flush();
  if (file_.rank == 0) cache_.drop();  // what failed stays, and may yet be saved
  auto dropped = file_.agree({});
  return fault ? fault : dropped;
}

Result<uint64_t> KeptRealms::read(Extents file, Extents memory) {
  return file_.move_in_store(Op::read, std::move(file), std::move(memory));
}

Result<void> KeptRealms::write(Extents file, Extents memory) {
  auto moved = file_.move_in_store(Op::write, std::move(file), std::move(memory));
  if (!moved) return moved.error();
  return {};
}

Result<uint64_t> KeptRealms::size() {
  return file_.size_in_store();
}

}  // namespace forebay::mpiio
