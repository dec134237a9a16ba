#include "mpiio/partial.h"

#include <algorithm>
#include <cstring>

#include "core/memory.h"
#include "plan/tiled_map.h"

namespace forebay::mpiio {
namespace {

// Both sides are addresses.
void copy(const plan::TiledMap& to, const plan::TiledMap& from, Length length) {
  constexpr size_t kMostBlocks = 4096;
  plan::TransferCursor cursor(to, Length(), from, Length(), length);
  while (!cursor.done()) {
    const auto part = cursor.next(length, kMostBlocks);
    const Memory into{nullptr, part.file}, out_of{nullptr, part.memory};
    walk_pairs(part.file, part.memory, [&](Extent a, Extent b) {
      std::memcpy(into.at(a.offset), out_of.at(b.offset), a.length.value);
      return true;
    });
  }
}

}  // namespace

Result<uint64_t> whole_elements(Decoder& decoder, MPI_Datatype type,
                                const Representation& representation, uint64_t bytes) {
  auto signature = decoder.signature(type);
  if (!signature) return signature.error();
  uint64_t length = 0;
  Result<void> good;
  signature->for_each_run(1, [&](const Signature::Run& run) {
    int in_memory = 0;
    PMPI_Type_size(run.primitive, &in_memory);
    auto in_file = representation.size_of(run.primitive);
    if (!in_file) good = in_file.error();
    if (!in_file) return false;
    if (*in_file == 0) return true;
    const auto each = static_cast<uint64_t>(*in_file);
    const uint64_t whole = std::min(run.count, bytes / each);
    length += whole * static_cast<uint64_t>(in_memory);
    bytes -= whole * each;
    return whole == run.count;
  });
  if (!good) return good.error();
  return length;
}

Fault decode_part(Decoder& decoder, const Representation& representation,
                  std::span<const std::byte> item, const Buffer& one, uint64_t length) {
  auto type = decoder.decode(one.type);
  if (!type) return fault_of(type.error());
  std::vector<std::byte> aside(static_cast<size_t>(type->true_extent()));
  void* const origin = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(aside.data()) -
                                               static_cast<uintptr_t>(type->true_lb()));
  if (auto fault = representation.decode({item.begin(), item.end()}, {origin, 1, one.type}))
    return fault;
  auto to = plan::TiledMap::buffer(one.address, 1, *type);
  auto from = plan::TiledMap::buffer(origin, 1, *type);
  if (!to || !from) return fault_of((to ? from : to).error());
  copy(*to, *from, Length(length));
  return {};
}

}  // namespace forebay::mpiio
