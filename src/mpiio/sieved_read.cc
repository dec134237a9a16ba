#include "mpiio/sieved_read.h"

#include <algorithm>
#include <memory>

#include "core/rows.h"

namespace forebay::mpiio {
namespace {

// A round trip to a daemon or a device, in bytes that it moves in the same time: 20 KiB through
// FUSE to a local disk, 100 KiB through FUSE to GlusterFS.
constexpr uint64_t kRoundTrip = 32_KiB;
constexpr uint64_t kCopies = 8;  // are cheap beside it

class Reading {
 public:
  Reading(Store& store, const Request& request, const plan::SieveCosts& costs)
      : store_(store),
        request_(request),
        steps_(request.file, costs),
        file_(request.file),
        memory_(request.memory.shape),
        size_(std::min(costs.window, request.file.bounds().length.value)),
        buffer_(std::make_unique_for_overwrite<std::byte[]>(size_)) {}

  Result<uint64_t> run() {
    while (const auto step = steps_.next()) {
      auto moved = step->window.empty() ? stretch(step->stream) : window(*step);
      if (!moved) return moved;
      count_ += *moved;
      if (*moved < step->stream.value) break;
    }
    return count_;
  }

 private:
  Result<uint64_t> read(Extents file, Memory memory) {
    Request part = request_;
    part.file = std::move(file);
    part.memory = std::move(memory);
    auto reply = store_.call(std::move(part));
    if (!reply) return reply.error();
    return reply->count;
  }

  // As it is.
  Result<uint64_t> stretch(Length stream) {
    const Length from = file_.position();
    file_.advance(stream);
    memory_.advance(stream);
    return read(request_.file.slice(from, stream), request_.memory.slice(from, stream));
  }

  Result<uint64_t> window(const plan::SieveStep& step) {
    FOREBAY_ASSERT(step.window.length.value <= size_);
    const std::span<std::byte> bytes(buffer_.get(), step.window.length.value);
    auto got = read(Extents(step.window), Memory::of(bytes));
    if (!got) return got;
    return copy(step, bytes.first(*got));
  }

  // The pieces of the window, up to the end of file.
  uint64_t copy(const plan::SieveStep& step, std::span<const std::byte> bytes) {
    uint64_t copied = 0;
    while (copied < step.stream.value) {
      const Extent piece = file_.take(Length(step.stream.value - copied));
      const uint64_t at = std::min((piece.offset - step.window.offset).value, bytes.size());
      const uint64_t n = std::min(piece.length.value, bytes.size() - at);
      copy_in(bytes.subspan(at, n), request_.memory, memory_);
      copied += n;
      if (n < piece.length.value) break;
    }
    return copied;
  }

  Store& store_;
  const Request& request_;
  plan::Sieve steps_;
  ExtentCursor file_, memory_;  // at the beginning of the step
  const uint64_t size_;
  const std::unique_ptr<std::byte[]> buffer_;
  uint64_t count_ = 0;
};

}  // namespace

std::optional<plan::SieveCosts> sieve_costs(const Extents& file, const ReadSieving& sieving,
                                            bool near) {
  if (sieving.wanted == SieveWanted::never || file.contiguous()) return std::nullopt;
  const bool always = sieving.wanted == SieveWanted::always;
  const uint64_t call = sieving.hole ? sieving.hole : always ? sieving.window : kRoundTrip;
  const plan::SieveCosts costs{
      .call = call, .copies = always ? sieving.window : kCopies, .window = sieving.window};
  if (always) return costs;
  if (near || !plan::likely_sieved(file, costs)) return std::nullopt;
  return costs;
}

Result<uint64_t> read_sieved(Store& store, const Request& request, const plan::SieveCosts& costs) {
  return Reading(store, request, costs).run();
}

}  // namespace forebay::mpiio
