#include "plan/coverage.h"

#include <algorithm>

namespace forebay::plan {

Ranges ranges_of(TiledMap map) {
  return [map = std::move(map)](Offset from) -> std::optional<Extent> {
    const Length position = map.position_beyond(from);
    if (position >= map.total()) return std::nullopt;
    return TiledCursor(map, position, map.total() - position).take(map.total());
  };
}

Ranges in_both(Ranges a, Ranges b) {
  return [a = std::move(a), b = std::move(b)](Offset from) -> std::optional<Extent> {
    for (;;) {
      const auto x = a(from), y = b(from);
      if (!x || !y) return std::nullopt;
      const Offset begin = std::max(x->offset, y->offset), end = std::min(x->end(), y->end());
      if (begin < end) return Extent{begin, end - begin};
      from = begin;
    }
  };
}

Coverage::Coverage(std::span<const ViewPart> parts, Ranges ranges) : ranges_(std::move(ranges)) {
  walkers_.reserve(parts.size());
  for (const ViewPart& part : parts) {
    if (part.empty()) continue;
    walkers_.push_back({&part, part.cursor(), {}});
    step(walkers_.back());
  }
  for (size_t i = walkers_.size(); i-- > 0;) sink(i);
}

void Coverage::step(Walker& walker) {
  walker.piece = walker.cursor.done() ? Extent{} : walker.cursor.take(walker.cursor.left());
}

void Coverage::skip_to(Walker& walker, Offset offset) {
  const ViewPart& part = *walker.part;
  const Length end = part.from + part.length;
  walker.cursor.seek(std::clamp(part.view.position_beyond(offset), walker.cursor.position(), end));
  step(walker);
}

// Puts the walker at `i` where it belongs among those below it; one at its end goes away.
void Coverage::sink(size_t i) {
  if (walkers_[i].piece.empty()) {
    std::swap(walkers_[i], walkers_.back());
    walkers_.pop_back();
  }
  for (;;) {
    size_t least = i;
    for (const size_t child : {2 * i + 1, 2 * i + 2})
      if (child < walkers_.size() && walkers_[child].piece.offset < walkers_[least].piece.offset)
        least = child;
    if (least == i || i >= walkers_.size()) return;
    std::swap(walkers_[i], walkers_[least]);
    i = least;
  }
}

// Goes to the range that holds the next byte that somebody names; false: there is none.
bool Coverage::find_range() {
  for (;;) {
    while (!walkers_.empty() && walkers_.front().piece.end() <= at_) {
      skip_to(walkers_.front(), at_);
      sink(0);
    }
    if (walkers_.empty()) return false;
    const Offset wanted = std::max(at_, walkers_.front().piece.offset);
    if (!range_ || range_->end() <= wanted) range_ = ranges_(wanted);
    if (!range_) return false;
    at_ = std::max(wanted, range_->offset);
    if (at_ < walkers_.front().piece.end()) return true;
  }
}

// From at_, which the front holds, up to where pieces continue each other, or the limit.
Offset Coverage::joined_end(Offset limit) {
  Offset end = at_;
  while (end < limit && !walkers_.empty() && walkers_.front().piece.offset <= end) {
    const Offset of_piece = walkers_.front().piece.end();
    end = std::min(limit, std::max(end, of_piece));
    if (of_piece > end) break;
    step(walkers_.front());
    sink(0);
  }
  return end;
}

std::vector<Extent> Coverage::next(uint64_t most_bytes, size_t most_runs) {
  std::vector<Extent> runs;
  while (most_bytes > 0 && runs.size() < most_runs && find_range()) {
    const Length room = std::min(Length(most_bytes), range_->end() - at_);
    const Offset end = joined_end(at_ + room);
    runs.push_back({at_, end - at_});
    most_bytes -= runs.back().length.value;
    at_ = end;
  }
  return runs;
}

uint64_t Coverage::count() && {
  uint64_t bytes = 0;
  while (find_range()) {
    const Offset end = joined_end(range_->end());
    bytes += (end - at_).value;
    at_ = end;
  }
  return bytes;
}

}  // namespace forebay::plan
