#include "mpiio/ordered.h"

#include <algorithm>
#include <new>
#include <span>
#include <vector>

#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

// What a rank says when it comes to an ordered call.
struct Coming {
  MPI_Offset etypes = 0;
  uint64_t bytes = 0;      // of its data, if
  bool small = false;      // it lies in its buffer
  uint64_t etype = 1;      // in bytes
  uint64_t view = 0;       // where its view begins
  int code = MPI_SUCCESS;  // of a fault of its own
};

struct Told {
  uint64_t base = 0;  // of the pointer before
  int code = MPI_SUCCESS;
  int error = 0;  // its errno
  bool written = false;
};

bool wants_engine(const File& file) {
  return file.hints.is("romio_cb_write", "enable") || file.hints.is("romio_cb_pfr", "enable");
}

Coming describe(const File& file, const Transfer& transfer, bool write) {
  Coming mine;
  mine.code = transfer.fault().code;
  mine.small = write && !file.atomic && !file.kept_realms && !wants_engine(file);
  if (transfer.fault()) return mine;
  mine.etypes = transfer.etypes();
  mine.bytes = transfer.memory().total().value;
  mine.etype = file.view.etype_size;
  mine.small = mine.small && mine.bytes <= NodeRecords::kMostBytes && file.view.map.contiguous() &&
               !file.view.representation->converts();
  if (mine.small && mine.bytes > 0) mine.view = file.view.map.offset_of(Length()).value;
  return mine;
}

// Nothing, if one of them lies beyond what a file can hold.
std::vector<NodeRecords::Record> places(const NodeRecords& records, std::span<const Coming> all,
                                        uint64_t base) {
  std::vector<NodeRecords::Record> found;
  uint64_t position = base;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Coming& one = all[rank];
    uint64_t at = 0, end = 0;
    if (__builtin_mul_overflow(position, one.etype, &at) ||
        __builtin_add_overflow(at, one.view, &at) || __builtin_add_overflow(at, one.bytes, &end) ||
        end > kMaxOffset)
      return {};
    if (one.bytes > 0) found.push_back({Offset(at), Length(one.bytes), records.buffer(rank)});
    position += static_cast<uint64_t>(one.etypes);
  }
  return found;
}

void write_for_all(const File& file, std::span<const Coming> all, Told& told) {
  const auto found = places(*file.meeting->records(), all, told.base);
  const bool any = std::ranges::any_of(all, [](const Coming& one) { return one.bytes > 0; });
  if (found.empty() && any) return;
  const auto write = [&file](Extents where, Extents memory) {
    return file.move(Op::write, std::move(where), std::move(memory));
  };
  told.error = NodeRecords::write(found, write);
  told.written = true;
  told.code = told.error ? class_of(told.error) : MPI_SUCCESS;
  for (const Coming& one : all) {
    if (one.code <= told.code) continue;
    told.code = one.code;
    told.error = 0;
  }
}

Told act(File& file, std::span<const Coming> all) {
  Told told;
  uint64_t total = 0;
  for (const Coming& one : all) total += static_cast<uint64_t>(one.etypes);
  auto state = file.meeting->state();
  auto base =
      state ? (*state)->fetch_and_add(file.shared_pointer, total) : Result<uint64_t>(state.error());
  if (!base) return {.code = fault_of(base.error()).code, .error = base.error().code()};
  told.base = *base;
  if (!std::ranges::all_of(all, &Coming::small)) return told;
  try {
    write_for_all(file, all, told);
  } catch (const std::bad_alloc&) {
    told.written = false;  // they may have the memory themselves
  }
  return told;
}

// The same class for all ranks; one that knows more says it.
void end_together(Transfer& transfer, const Told& told, uint64_t bytes) {
  if (told.code == MPI_SUCCESS) return transfer.set_moved(bytes);
  if (transfer.fault().code == told.code) return;
  Fault fault = told.error ? fault_of(Error(told.error, "records of several ranks in one write"))
                           : Fault{told.code, "another rank failed"};
  if (transfer.fault()) fault.text = transfer.fault().text;
  transfer.fail(std::move(fault));
}

}  // namespace

OrderedPlace take_place_in_order(File& file, Transfer& transfer, bool write) {
  Gathering* const gathering = file.meeting->gathering();
  const NodeRecords* const records = file.meeting->records();
  const Coming mine = describe(file, transfer, write && records);
  if (mine.small && mine.bytes > 0)
    records->fill(static_cast<size_t>(file.rank), transfer.memory());
  std::vector<Coming> all(static_cast<size_t>(file.ranks));
  const Told told = gathering->gather(
      &mine, sizeof mine, all.data(), [&] { return act(file, all); }, progress);
  OrderedPlace place;
  if (told.written) {
    place.written = true;
    end_together(transfer, told, mine.bytes);
    return place;
  }
  if (told.code != MPI_SUCCESS) {
    place.fault = {told.code, "the shared pointer cannot be moved"};
    return place;
  }
  place.position = static_cast<MPI_Offset>(told.base);
  for (int rank = 0; rank < file.rank; ++rank)
    place.position += all[static_cast<size_t>(rank)].etypes;
  return place;
}

}  // namespace forebay::mpiio
