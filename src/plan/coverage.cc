#include "plan/coverage.h"

#include <algorithm>
#include <bit>

#include "core/rows.h"

namespace forebay::plan {
namespace {

constexpr uint64_t kMostMarked = 1_MiB;  // at once
constexpr uint64_t kLeastMarked = 4_KiB;
constexpr uint64_t kSmallPiece = 1_KiB;
constexpr size_t kFewPieces = 8;
constexpr size_t kMostListed = 1024;  // pieces without a loop, at once

// Sets the bits [from, to).
void mark(std::vector<uint64_t>& marks, uint64_t from, uint64_t to) {
  const uint64_t first = from / 64, last = (to - 1) / 64;
  const uint64_t head = ~uint64_t{0} << (from % 64), tail = ~uint64_t{0} >> (63 - (to - 1) % 64);
  if (first == last) {
    marks[first] |= head & tail;
    return;
  }
  marks[first] |= head;
  for (uint64_t i = first + 1; i < last; ++i) marks[i] = ~uint64_t{0};
  marks[last] |= tail;
}

// The first bit at or after `from` that has this value, or `end`.
uint64_t find(const std::vector<uint64_t>& marks, uint64_t from, uint64_t end, bool value) {
  while (from < end) {
    const uint64_t word = (value ? marks[from / 64] : ~marks[from / 64]) >> (from % 64);
    if (word) return std::min(end, from + static_cast<uint64_t>(std::countr_zero(word)));
    from += 64 - from % 64;
  }
  return end;
}

void add(std::vector<Extent>& runs, Extent run) {
  if (!runs.empty() && runs.back().end() == run.offset)
    runs.back().length += run.length;
  else
    runs.push_back(run);
}

}  // namespace

Ranges ranges_of(TiledMap map) {
  return [map = std::move(map)](Offset from) -> std::optional<Extent> {
    const Length position = map.position_beyond(from);
    if (position >= map.total()) return std::nullopt;
    return TiledCursor(map, position, map.total() - position).take(map.total());
  };
}

Ranges in_both(Ranges a, Ranges b, Offset end_of_all) {
  return [a = std::move(a), b = std::move(b), end_of_all](Offset from) -> std::optional<Extent> {
    while (from < end_of_all) {
      const auto x = a(from), y = b(from);
      if (!x || !y) return std::nullopt;
      const Offset begin = std::max(x->offset, y->offset), end = std::min(x->end(), y->end());
      if (begin < end) return Extent{begin, end - begin};
      from = begin;
    }
    return std::nullopt;
  };
}

Coverage::Coverage(std::span<const ViewPart> parts, Ranges ranges, Extent bounds)
    : ranges_(std::move(ranges)), bounds_(bounds), at_(bounds.offset) {
  for (const ViewPart& part : parts)
    if (!part.empty() && !part.apart_from(bounds)) near_.push_back(&part);
  start();
}

// From at_ on.
void Coverage::start() {
  walkers_.clear();
  if (at_ >= bounds_.end()) return;
  std::erase_if(near_, [this](const ViewPart* part) {
    const ViewPart inside = part->within({at_, bounds_.end() - at_});
    ++steps_;
    if (inside.empty()) return true;
    walkers_.push_back({part, inside.from, inside.from + inside.length, inside.cursor(), {}});
    step(walkers_.back());
    return false;
  });
  order();
}

void Coverage::order() {
  std::erase_if(walkers_, [](const Walker& walker) { return walker.piece.empty(); });
  for (size_t i = walkers_.size(); i-- > 0;) sink(i);
}

void Coverage::step(Walker& walker) {
  ++steps_;
  walker.piece = walker.cursor.done() ? Extent{} : walker.cursor.take(walker.cursor.left());
}

void Coverage::skip_to(Walker& walker, Offset offset) {
  walker.cursor.seek(
      std::clamp(walker.part->view.position_beyond(offset), walker.from, walker.end));
  step(walker);
}

// Puts the walker at `i` where it belongs among those below it; one at its end goes away.
void Coverage::sink(size_t i) {
  if (walkers_[i].piece.empty()) {
    std::swap(walkers_[i], walkers_.back());
    walkers_.pop_back();
  }
  for (;; ++steps_) {
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

// Those with a piece before the limit, which are the top of the heap: the others are not looked at.
void Coverage::find_before(Offset limit) {
  before_.clear();
  const auto add = [&](size_t i) {
    if (i < walkers_.size() && walkers_[i].piece.offset < limit) before_.push_back(i);
  };
  add(0);
  for (size_t k = 0; k < before_.size(); ++k) {
    const size_t i = before_[k];
    add(2 * i + 1), add(2 * i + 2);
  }
  steps_ += before_.size();
}

// Are there so many small pieces up to the limit that marking them pays?
// All ranks there are asked, so not again before what was found to be sparse has been passed.
bool Coverage::dense(Offset limit) {
  const Length span = limit - at_;
  if (at_ < sparse_until_ || span.value < kLeastMarked ||
      walkers_.front().piece.length.value > kSmallPiece)
    return false;
  uint64_t bytes = 0;
  find_before(limit);
  for (const size_t i : before_) {
    bytes += walkers_[i].part->within({at_, span}).length.value;
    if (bytes >= span.value / 8) return true;
  }
  sparse_until_ = limit;
  return false;
}

// The first few pieces of a rank one by one, since where there are many ranks it has no more; then
// a row at a time, where pieces lie in rows: that is a fraction of what a cursor takes for each.
void Coverage::mark_all(Offset limit) {
  marks_.assign(((limit - at_).value + 63) / 64, 0);
  find_before(limit);
  for (const size_t i : before_) {
    Walker& walker = walkers_[i];
    Extent& piece = walker.piece;
    for (size_t k = 0; k < kFewPieces && !piece.empty() && piece.end() <= limit; ++k) {
      const Offset from = std::max(piece.offset, at_);
      if (from < piece.end()) mark(marks_, (from - at_).value, (piece.end() - at_).value);
      step(walker);
    }
    if (piece.empty() || piece.offset >= limit) continue;
    const Offset from = std::max(piece.offset, at_);
    TiledCursor cursor = walker.part->within({from, limit - from}).cursor();
    while (!cursor.done()) {
      const Extents pieces = cursor.next(cursor.left(), kMostListed);
      for (ExtentCursor places(pieces); !places.done();) {
        const Row row = row_at(pieces, places);
        const uint64_t length = row.first.length.value;
        uint64_t first = (row.first.offset - at_).value;
        for (uint64_t k = 0; k < row.count; ++k, first += static_cast<uint64_t>(row.stride))
          mark(marks_, first, first + length);
        places.advance(Length(length * row.count));
        steps_ += row.count;
      }
    }
    skip_to(walker, limit);
  }
  // From the lowest up: what is below each is in order by then.
  for (size_t k = before_.size(); k-- > 0;) sink(before_[k]);
}

uint64_t Coverage::take_marked(Offset limit, size_t most_runs, std::vector<Extent>& runs) {
  const Offset base = at_;
  const uint64_t end = (limit - base).value;
  uint64_t bytes = 0;
  for (uint64_t from = 0; (from = find(marks_, from, end, true)) < end;) {
    if (runs.size() == most_runs && runs.back().end() != base + Length(from)) {
      // The rest is for the next window.
      at_ = base + Length(from);
      start();
      return bytes;
    }
    const uint64_t to = find(marks_, from, end, false);
    add(runs, {base + Length(from), Length(to - from)});
    bytes += to - from;
    from = to;
  }
  at_ = limit;
  return bytes;
}

std::vector<Extent> Coverage::next(uint64_t most_bytes, size_t most_runs) {
  std::vector<Extent> runs;
  while (most_bytes > 0 && most_runs > 0 && find_range()) {
    if (runs.size() == most_runs && runs.back().end() != at_) break;
    const Offset limit = at_ + std::min(Length(most_bytes), range_->end() - at_);
    const Offset near_limit = std::min(limit, at_ + Length(kMostMarked));
    if (dense(near_limit)) {
      mark_all(near_limit);
      most_bytes -= take_marked(near_limit, most_runs, runs);
      continue;
    }
    const Offset end = joined_end(limit);
    add(runs, {at_, end - at_});
    most_bytes -= (end - at_).value;
    at_ = end;
  }
  return runs;
}

bool Coverage::worth_reading(Extent range) {
  uint64_t named = 0;
  for (const ViewPart* part : near_) {
    named += part->within(range).length.value;
    ++steps_;
    if (named >= range.length.value / 2) return true;
  }
  return false;
}

std::vector<Extent> Coverage::next_through(uint64_t most_bytes, size_t most_runs) {
  if (most_bytes == 0 || most_runs == 0 || !find_range()) return {};
  if (end_ == Offset())
    for (const ViewPart* part : near_) end_ = std::max(end_, part->bounds().end());
  const Length most = std::min(range_->end(), end_) - at_;
  const Extent run{at_, std::min(Length(most_bytes), most)};
  if (!worth_reading(run)) return next(most_bytes, most_runs);
  at_ = run.end();
  return {run};
}

std::vector<uint64_t> places_of(std::span<const Extent> runs) {
  std::vector<uint64_t> places;
  places.reserve(runs.size());
  uint64_t place = 0;
  for (const Extent& run : runs) {
    places.push_back(place);
    place += run.length.value;
  }
  return places;
}

size_t run_beyond(std::span<const Extent> runs, size_t run, Offset offset, uint64_t& steps) {
  size_t low = run, high = run;
  for (size_t stride = 1; high < runs.size() && runs[high].end() <= offset; stride *= 2, ++steps) {
    low = high + 1;
    high += stride;
  }
  high = std::min(high, runs.size());
  for (; low < high; ++steps) {
    const size_t middle = low + (high - low) / 2;
    if (runs[middle].end() <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

std::optional<Extents> pieces_in(const Ranges& ranges, const ViewPart& part, size_t most_pieces) {
  std::vector<Extent> pieces;
  std::optional<Extent> range;
  const Length end = part.from + part.length;
  bool more = true;
  for (TiledCursor cursor = part.cursor(); more && !cursor.done();) {
    for (Extent piece = cursor.take(cursor.left()); !piece.empty();) {
      if (!range || range->end() <= piece.offset) range = ranges(piece.offset);
      more = range.has_value();
      if (!more) break;
      if (piece.end() <= range->offset) {  // to the next that is in it
        cursor.seek(std::clamp(part.view.position_beyond(range->offset), cursor.position(), end));
        break;
      }
      const Offset begin = std::max(piece.offset, range->offset);
      const Offset stop = std::min(piece.end(), range->end());
      add(pieces, {begin, stop - begin});
      if (pieces.size() > most_pieces) return std::nullopt;
      piece = {stop, piece.end() - stop};
    }
  }
  auto made = Extents::make(std::move(pieces));
  return made ? std::optional<Extents>(std::move(*made)) : std::nullopt;
}

uint64_t bytes_in_window(std::span<const Extent> runs, const ViewPart& part) {
  if (part.empty() || runs.empty()) return 0;
  if (runs.size() == 1) return part.within(runs.front()).length.value;
  uint64_t bytes = 0;
  find_in_runs(runs, part, [&](size_t, Offset, Length, uint64_t length) { bytes += length; });
  return bytes;
}

}  // namespace forebay::plan
