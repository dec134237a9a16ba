#include "core/extents.h"

#include <fmt/format.h>

namespace forebay {
namespace {

__extension__ typedef __int128 Wide;

Result<void> check_block(const Extent& b) {
  uint64_t end;
  if (__builtin_add_overflow(b.offset.value, b.length.value, &end) || end > kMaxOffset) {
    return Error(EINVAL, fmt::format("extent of {} bytes at {} ends beyond the largest offset {}",
                                     b.length.value, b.offset.value, kMaxOffset));
  }
  return {};
}

// How far the loops move a block, down and up, over all repetitions.
struct Reach {
  int64_t down = 0, up = 0;
};

Result<Reach> reach_of(std::span<const Stride> loops) {
  Wide down = 0, up = 0;
  for (const Stride& loop : loops) {
    // At most 2^64 * 2^63 in size, which fits; and since nothing is kept beyond 2^63, so do the
    // sums.
    const Wide span = Wide(loop.count - 1) * loop.stride;
    (span < 0 ? down : up) += span;
    if (down < -Wide(kMaxOffset) || up > Wide(kMaxOffset)) {
      return Error(EINVAL,
                   fmt::format("{} repetitions with a stride of {} leave the range of offsets",
                               loop.count, loop.stride));
    }
  }
  return Reach{static_cast<int64_t>(down), static_cast<int64_t>(up)};
}

void drop_and_join(std::vector<Extent>& blocks) {
  size_t kept = 0;
  for (const Extent& b : blocks) {
    if (b.empty()) continue;
    if (kept > 0 && blocks[kept - 1].end() == b.offset) {
      blocks[kept - 1].length += b.length;
    } else {
      blocks[kept++] = b;
    }
  }
  blocks.resize(kept);
}

// A block that continues itself from one repetition to the next is one block. Its end was checked
// with the loops' reach, so the product fits.
void fold_loops(Extent& block, std::vector<Stride>& loops) {
  while (!loops.empty() && loops.back().stride > 0 &&
         static_cast<uint64_t>(loops.back().stride) == block.length.value) {
    block.length = Length(block.length.value * loops.back().count);
    loops.pop_back();
  }
}

// An offset moved by a sum of strides. Whatever a valid Extents adds stays in range.
Offset moved(Offset o, int64_t by) {
  return Offset(o.value + static_cast<uint64_t>(by));
}

}  // namespace

Extents::Extents(Extent one) {
  const Result<void> ok = check_block(one);
  FOREBAY_ASSERT(ok, ok.error().message());
  if (one.empty()) return;
  blocks_ = {one};
  list_total_ = total_ = one.length;
  pieces_ = 1;
  bounds_ = one;
}

Result<Extents> Extents::make(std::vector<Extent> blocks, std::vector<Stride> loops) {
  for (const Extent& b : blocks) {
    if (auto ok = check_block(b); !ok) return std::move(ok).error();
  }
  drop_and_join(blocks);
  const bool never = std::any_of(loops.begin(), loops.end(), [](auto& l) { return l.count == 0; });
  if (never || blocks.empty()) return Extents();
  std::erase_if(loops, [](const Stride& l) { return l.count == 1; });

  Extents made;
  made.blocks_ = std::move(blocks);
  made.loops_ = std::move(loops);
  if (auto ok = made.measure(); !ok) return std::move(ok).error();
  return made;
}

// Computes bounds, totals and the index of checked, joined blocks and loops of two or more
// repetitions, and brings a lone block to its smallest form.
Result<void> Extents::measure() {
  const Result<Reach> reach = reach_of(loops_);
  if (!reach) return reach.error();
  Offset lowest(kMaxOffset), highest(0);
  Wide total = 0;
  for (const Extent& b : blocks_) {
    lowest = std::min(lowest, b.offset);
    highest = std::max(highest, b.end());
    total += b.length.value;
  }
  const Wide low = Wide(lowest.value) + reach->down, high = Wide(highest.value) + reach->up;
  if (low < 0 || high > Wide(kMaxOffset)) {
    return Error(EINVAL, "the loops move an extent out of the range of offsets");
  }
  if (blocks_.size() == 1) {
    fold_loops(blocks_[0], loops_);
    total = blocks_[0].length.value;
  }
  // Each total stays below 2^63 before it is multiplied by less than 2^64.
  const Wide list_total = total;
  Wide pieces = blocks_.size();
  for (const Stride& loop : loops_) {
    if (total > Wide(kMaxOffset)) break;
    total *= loop.count;
    pieces *= loop.count;
  }
  if (total > Wide(kMaxOffset)) {
    return Error(EOVERFLOW, "the extents name more bytes in all than 63 bits can count");
  }
  list_total_ = Length(static_cast<uint64_t>(list_total));
  total_ = Length(static_cast<uint64_t>(total));
  pieces_ = static_cast<uint64_t>(pieces);
  bounds_ = {Offset(static_cast<uint64_t>(low)), Length(static_cast<uint64_t>(high - low))};
  starts_.clear();
  starts_.reserve((blocks_.size() - 1) / kIndexStep);
  Length start;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i > 0 && i % kIndexStep == 0) starts_.push_back(start);
    start += blocks_[i].length;
  }
  return {};
}

Extents::Found Extents::find(Length at) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), at);
  size_t block = static_cast<size_t>(after - starts_.begin()) * kIndexStep;
  Length start = after == starts_.begin() ? Length(0) : *std::prev(after);
  while (at >= start + blocks_[block].length) start += blocks_[block++].length;
  return {block, start};
}

// A part of one walk of the block list, moved.
Extents Extents::slice_list(Length from, Length length, int64_t by) const {
  const Found first = find(from);
  Length skip = from - first.start;
  std::vector<Extent> part;
  for (size_t i = first.block; length; ++i) {
    const Length n = std::min(blocks_[i].length - skip, length);
    part.push_back({moved(blocks_[i].offset, by) + skip, n});
    length -= n;
    skip = Length(0);
  }
  return make(std::move(part)).value();
}

Extents Extents::slice_unrolled(Length from, Length length) const {
  ExtentCursor cursor(*this);
  cursor.advance(from);
  std::vector<Extent> part;
  while (length) {
    part.push_back(cursor.take(length));
    length -= part.back().length;
  }
  return make(std::move(part)).value();
}

// `count` repetitions of loop `first_loop` and all that is inside it, moved.
Extents Extents::shifted(int64_t by, size_t first_loop, uint64_t count) const {
  std::vector<Extent> blocks = blocks_;
  for (Extent& b : blocks) b.offset = moved(b.offset, by);
  std::vector<Stride> loops(loops_.begin() + static_cast<ptrdiff_t>(first_loop), loops_.end());
  loops[0].count = count;
  return make(std::move(blocks), std::move(loops)).value();
}

Extents Extents::slice(Length from, Length length) const {
  FOREBAY_ASSERT(from <= total_ && length <= total_ - from);
  if (!length) return Extents();
  if (from.value == 0 && length == total_) return *this;

  // Go inwards as long as the part lies within one repetition.
  uint64_t repetition = total_.value;  // bytes of one repetition of the loop looked at
  uint64_t start = from.value;
  int64_t shift = 0;
  for (size_t k = 0; k < loops_.size(); ++k) {
    repetition /= loops_[k].count;
    const uint64_t first = start / repetition;
    const uint64_t last = (start + length.value - 1) / repetition;
    shift += static_cast<int64_t>(first) * loops_[k].stride;
    start %= repetition;
    if (first == last && length.value < repetition) continue;
    if (start != 0 || length.value % repetition != 0) return slice_unrolled(from, length);
    return shifted(shift, k, last - first + 1);
  }
  return slice_list(Length(start), length, shift);
}

std::optional<std::vector<Extent>> Extents::to_list(uint64_t limit) const {
  std::vector<Extent> list;
  for (ExtentCursor cursor(*this); !cursor.done();) {
    if (list.size() == limit) return std::nullopt;
    list.push_back(cursor.take(total_));
  }
  return list;
}

ExtentCursor::ExtentCursor(const Extents& extents)
    : extents_(&extents), index_(extents.loops_.size(), 0) {}

Extent ExtentCursor::current() const {
  if (done()) return {};
  const Extent& b = extents_->blocks_[block_];
  return {moved(b.offset, shift_) + within_, b.length - within_};
}

void ExtentCursor::advance(Length n) {
  FOREBAY_ASSERT(n <= extents_->total_ - position_);
  const Length target = position_ + n;
  if (target == extents_->total_) {
    position_ = target;
    return;
  }
  constexpr int kSteps = 8;  // beyond this, divisions are cheaper than steps
  for (int i = 0; i < kSteps; ++i) {
    const Length left = extents_->blocks_[block_].length - within_;
    if (n < left) {
      within_ += n;
      position_ = target;
      return;
    }
    n -= left;
    next_piece();
  }
  seek(target);
}

void ExtentCursor::next_piece() {
  within_ = Length(0);
  if (++block_ < extents_->blocks_.size()) return;
  block_ = 0;
  for (size_t k = index_.size(); k-- > 0;) {
    const Stride& loop = extents_->loops_[k];
    if (++index_[k] < loop.count) {
      shift_ += loop.stride;
      return;
    }
    shift_ -= static_cast<int64_t>(loop.count - 1) * loop.stride;
    index_[k] = 0;
  }
}

void ExtentCursor::seek(Length position) {
  uint64_t repetition = position.value / extents_->list_total_.value;
  const Length at(position.value % extents_->list_total_.value);
  shift_ = 0;
  for (size_t k = index_.size(); k-- > 0;) {
    const Stride& loop = extents_->loops_[k];
    index_[k] = repetition % loop.count;
    repetition /= loop.count;
    shift_ += static_cast<int64_t>(index_[k]) * loop.stride;
  }
  const Extents::Found found = extents_->find(at);
  block_ = found.block;
  within_ = at - found.start;
  position_ = position;
}

Extents ExtentCursor::take_list(Length most, size_t pieces) {
  std::vector<Extent> list;
  const Length start = position_;
  while (!done() && position_ - start < most && list.size() < pieces) {
    list.push_back(take(most - (position_ - start)));
  }
  Result<Extents> made = Extents::make(std::move(list));
  FOREBAY_ASSERT(made.has_value());  // parts of a valid one
  return std::move(*made);
}

Extent ExtentCursor::take(Length most) {
  Extent taken = current();
  taken.length = std::min(taken.length, most);
  advance(taken.length);
  while (taken.length < most && !done()) {
    const Extent more = current();
    if (more.offset != taken.end()) break;
    const Length n = std::min(more.length, most - taken.length);
    taken.length += n;
    advance(n);
  }
  return taken;
}

}  // namespace forebay
