#include "mpiio/windowed_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace forebay::mpiio {
namespace {

// What goes around the page cache goes from memory that is aligned as our buffers are.
uint64_t least_of(const File& file) {
  if (file.hints.is("forebay_direct", "true")) return UINT64_MAX;
  return file.place.local ? plan::OwnPieces::kLeastLocal : plan::OwnPieces::kLeast;
}

}  // namespace

WindowedCall::WindowedCall(Collective& kept, Transfer& transfer, const plan::Realms& realms)
    : kept_(kept),
      file_(kept.file_),
      transfer_(transfer),
      realms_(realms),
      bytes_(transfer.part(), transfer.memory()),
      open_(kept.aggregators_.size(), 1),
      open_count_(open_.size()),
      least_own_(least_of(file_)),
      memory_(transfer.memory(), Length(), bytes_.part().length) {}

// A call that is large enough has some windows, so that ranks fill one while another is moved. A
// Store moves this many bytes as well as more.
uint64_t WindowedCall::window_bytes() const {
  constexpr uint64_t kLeast = 512_KiB, kWindows = 4;
  const uint64_t half = kept_.made_for_.buffer_half();
  if (kept_.order_.known()) return half;
  uint64_t bytes = 0;
  for (const auto& rank : kept_.summaries_) bytes += rank.length;
  const uint64_t window = bytes / kept_.aggregators_.size() / kWindows;
  return window < kLeast ? half : std::min(window, half);
}

// With targets known every aggregator has to know what the others have. One whose memory does not
// suffice has no windows.
void WindowedCall::plan_windows() {
  make_file_long();
  const plan::Striping striping = kept_.order_;
  const size_t aggregators = kept_.aggregators_.size();
  const auto mine = static_cast<size_t>(std::max(kept_.index_, 0));
  const plan::WindowLimits limits{window_bytes(), aggregates() ? own_area().shape().runs : 0};
  std::vector<uint64_t> loads(striping.known() ? aggregators * striping.targets : 0, 0);
  if (aggregates() && striping.known()) {
    within_memory([&] {
      const auto own_loads = plan::loads_by_target(kept_.parts_, realms_[mine], striping, limits);
      std::copy(own_loads.begin(), own_loads.end(),
                loads.begin() + static_cast<ptrdiff_t>(mine * striping.targets));
    });
  }
  if (striping.known())
    PMPI_Allreduce(MPI_IN_PLACE, loads.data(), static_cast<int>(loads.size()), MPI_UINT64_T,
                   MPI_SUM, file_.comm);
  if (!aggregates() || failed_) return;
  const plan::Gaps gaps = reading() && file_.place.local && !some_may_own_pieces()
                              ? plan::Gaps::where_dense
                              : plan::Gaps::never;
  within_memory([&] {
    windows_ = striping.known()
                   ? plan::windows_by_target(kept_.parts_, realms_[mine], striping, limits, mine,
                                             std::move(loads))
                   : plan::windows_by_offset(kept_.parts_, realms_[mine], limits, gaps);
  });
}

std::vector<Extent> WindowedCall::next_runs() {
  std::vector<Extent> runs;
  if (windows_) within_memory([&] { runs = windows_->next(); });
  return runs;
}

// A local file whose windows go through mappings, because small gaps are between their pieces, gets
// its blocks and its size at once, which is the size that it has when the call is done: pages are
// large only where the file does not end in the middle of them. The aggregator of the last realm
// does so. If there is no room, the windows find out how far it goes.
void WindowedCall::make_file_long() {
  constexpr uint64_t kMapped = 4_KiB;  // pieces, at most
  if (reading() || !file_.place.local || file_.place.served || file_.kept()) return;
  if (kept_.index_ + 1 != static_cast<int>(kept_.aggregators_.size())) return;
  uint64_t bytes = 0, piece = kMapped;
  for (const auto& rank : kept_.summaries_) {
    bytes += rank.length;
    if (rank.length > 0) piece = std::min(piece, rank.piece);
  }
  const Extent all = kept_.region();
  const bool gaps = bytes < all.length.value, dense = bytes >= all.length.value / 2;
  if (!gaps || !dense || piece == kMapped) return;
  const auto allocate = [&](Extent where, uint32_t flags) {
    Request request = file_.request(Op::fallocate);
    request.offset = where.offset;
    request.length = where.length;
    request.flags = flags;
    return file_.call(std::move(request)).has_value();
  };
  if (allocate(all, kFlagKeepSize)) allocate({Offset(all.end().value - 1), Length(1)}, 0);
}

// Out of memory is an error as any other: the windows go on.
Result<uint64_t> WindowedCall::move_window(std::span<const Extent> list, std::byte* buffer,
                                           const plan::OwnPieces& own) try {
  uint64_t bytes = 0;
  for (const Extent& run : list) bytes += run.length.value;
  auto runs = Extents::make({list.begin(), list.end()});
  if (!runs) return runs.error();
  const Extent whole{Offset(reinterpret_cast<uintptr_t>(buffer)), Length(bytes)};
  return file_.move(reading() ? Op::read : Op::write, std::move(*runs), own.memory(whole),
                    Allocate::yes);
} catch (const std::bad_alloc&) {
  return Error(ENOMEM, "out of memory");
}

void WindowedCall::fail(const Error& error) {
  failed_ = true;
  if (!transfer_.fault()) transfer_.fail(fault_of(error));
}

bool WindowedCall::some_may_own_pieces() const {
  for (size_t rank = 0; rank < kept_.summaries_.size(); ++rank)
    if (kept_.summaries_[rank].length > 0 && may_own_pieces(rank)) return true;
  return false;
}

// What may stay in its memory stays there.
uint64_t WindowedCall::copy_but_own(const WindowArea::Seen& seen, plan::OwnPieces& own) {
  uint64_t copied = 0;
  for_each_own(seen.runs, [&](uint64_t place, Extent memory) {
    auto* const data = reinterpret_cast<std::byte*>(memory.offset.value);
    const uint64_t end = std::max(place, seen.there);
    const uint64_t there = std::min(memory.length.value, end - place);
    copied += there;
    if (reading() && !own.has(place)) std::memcpy(data, seen.buffer + place, there);
    if (!reading() && !own.take(place, memory)) std::memcpy(seen.buffer + place, data, there);
  });
  return copied;
}

}  // namespace forebay::mpiio
