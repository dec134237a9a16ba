#include <algorithm>
#include <numeric>

#include "plan/tiled_map.h"
#include "plan/type_node.h"

namespace forebay::plan {
namespace {

using Kind = TypeNode::Kind;

constexpr size_t kRun = SIZE_MAX;  // instead of a frame: the current run

Extent extent_at(int64_t at, uint64_t length) {
  return {Offset(static_cast<uint64_t>(at)), Length(length)};
}

// What is left of a node when its loops, from the outermost on, are taken off.
const TypeNode& body_of(const TypeNode& node) {
  const TypeNode* body = &node;
  while (body->kind == Kind::kLoop) body = body->child.get();
  return *body;
}

Extents made(std::vector<Extent> blocks, std::vector<Stride> loops = {}) {
  Result<Extents> extents = Extents::make(std::move(blocks), std::move(loops));
  FOREBAY_ASSERT(extents.has_value());  // all of a TiledMap is in bounds
  return std::move(*extents);
}

}  // namespace

TiledCursor::TiledCursor(const TiledMap& map, Length from, Length length)
    : root_(map.root_), at_(map.at_), end_((from + length).value) {
  FOREBAY_ASSERT(from <= map.total() && length <= map.total() - from);
  seek(from);
}

void TiledCursor::seek(Length position) {
  FOREBAY_ASSERT(position.value <= end_);
  position_ = position.value;
  frames_.clear();
  if (position_ < end_) descend(root_.get(), root_->size, at_, 0);
}

// Down to the run that holds the current position, which lies in this node.
void TiledCursor::descend(const TypeNode* node, uint64_t size, int64_t at, uint64_t start) {
  while (node && node->kind != Kind::kRun) {
    const uint64_t place = position_ - start;
    Frame frame{node, at, start, 0, start, 0, 0};
    if (node->kind == Kind::kLoop) {
      frame.count = node->count;
      frame.stride = node->stride;
      size = node->child->size;
      if (place > 0) frame.index = place / size;
      frame.child += frame.index * size;
      at += static_cast<int64_t>(frame.index) * node->stride;
      node = node->child.get();
    } else {
      if (place > 0) frame.index = node->entry_of(place);
      const TypeNode::Entry& e = node->entries[frame.index];
      size = node->entry_size(frame.index);
      frame.child += e.start;
      at += e.at;
      node = e.child;
    }
    start = frame.child;
    frames_.push_back(frame);
  }
  run_at_ = at;
  run_start_ = start;
  run_length_ = size;
}

// To the run after the current one, all of which has been walked.
void TiledCursor::next_run() {
  while (!frames_.empty()) {
    Frame& f = frames_.back();
    ++f.index;
    if (f.node->kind == Kind::kLoop && f.index < f.node->count) {
      const TypeNode* child = f.node->child.get();
      f.child += child->size;
      return descend(child, child->size, f.at + static_cast<int64_t>(f.index) * f.node->stride,
                     f.child);
    }
    if (f.node->kind == Kind::kList && f.index < f.node->entries.size()) {
      const TypeNode::Entry& e = f.node->entries[f.index];
      f.child = f.start + e.start;
      return descend(e.child, f.node->entry_size(f.index), f.at + e.at, f.child);
    }
    frames_.pop_back();
  }
}

Extent TiledCursor::take_of_run(uint64_t most) {
  const uint64_t within = position_ - run_start_;
  const uint64_t n = std::min({run_length_ - within, most, end_ - position_});
  const Extent taken = extent_at(run_at_ + static_cast<int64_t>(within), n);
  position_ += n;
  if (within + n == run_length_ && position_ < end_) next_run();
  return taken;
}

Nest TiledCursor::take_nest(Length most) {
  const uint64_t left = std::min(most.value, end_ - position_);
  const bool whole_run = position_ == run_start_ && run_length_ <= left;
  Nest nest{extent_at(run_at_, run_length_), {{{1, 0}, {1, 0}, {1, 0}}}, run_length_};
  size_t loops = 0;
  for (size_t i = frames_.size(); whole_run && i-- > 0 && loops < nest.loops.size();) {
    const Frame& f = frames_[i];
    const uint64_t count = std::min(f.count - std::min(f.count, f.index), left / nest.bytes);
    if (count < 2) break;
    nest.loops[loops++] = {count, f.stride};
    nest.bytes *= count;
    if (count < f.count) break;  // not from its beginning to its end
  }
  if (loops < 2) {
    const Row row = take_row(Length(left));
    return {
        row.first, {{{row.count, row.stride}, {1, 0}, {1, 0}}}, row.first.length.value * row.count};
  }
  seek(Length(position_ + nest.bytes));
  return nest;
}

// Whole runs of the innermost loop or list, up to `end` and without its last, which the way through
// the tree goes on from. Most pieces of most types are walked here.
void TiledCursor::list_siblings(uint64_t end, size_t most_blocks, std::vector<Extent>& blocks) {
  if (frames_.empty() || position_ != run_start_) return;
  Frame& f = frames_.back();
  const TypeNode& node = *f.node;
  const bool loop = node.kind == Kind::kLoop;
  const uint64_t last = (loop ? node.count : node.entries.size()) - 1;
  while (f.index < last && blocks.size() < most_blocks && position_ + run_length_ <= end) {
    if (!loop && node.entries[f.index + 1].child) break;
    const Extent piece = extent_at(run_at_, run_length_);
    if (!blocks.empty() && blocks.back().end() == piece.offset) break;
    blocks.push_back(piece);
    position_ += run_length_;
    ++f.index;
    run_start_ = f.child = position_;
    if (loop) {
      run_at_ += node.stride;
    } else {
      run_at_ = f.at + node.entries[f.index].at;
      run_length_ = node.entry_size(f.index);
    }
  }
}

// The next `most` bytes as blocks, as far as so many will do; returns the bytes.
uint64_t TiledCursor::list(uint64_t most, size_t most_blocks, std::vector<Extent>& blocks) {
  const uint64_t from = position_;
  const uint64_t end = from + std::min(most, end_ - from);
  blocks.clear();
  while (position_ < end) {
    list_siblings(end, most_blocks, blocks);
    if (position_ == end) break;
    const uint64_t within = position_ - run_start_;
    const Offset at(static_cast<uint64_t>(run_at_) + within);
    const bool continues = !blocks.empty() && blocks.back().end() == at;
    if (!continues && blocks.size() == most_blocks) break;
    const Extent piece = take_of_run(end - position_);
    if (continues) {
      blocks.back().length += piece.length;
    } else {
      blocks.push_back(piece);
    }
  }
  return position_ - from;
}

// All ways to walk on from here in equal units, the innermost first. One may begin anywhere in a
// repetition and end at the same place in a later one, if a repetition is small enough for a list;
// otherwise it must begin with the repetition, whose own loops it then keeps.
void TiledCursor::find_regular(uint64_t most, size_t most_blocks,
                               std::vector<Regular>& found) const {
  found.clear();
  found.push_back({1, std::min(most, run_start_ + run_length_ - position_), 1, kRun});
  for (size_t i = frames_.size(); i-- > 0;) {
    const Frame& f = frames_[i];
    if (f.node->kind != Kind::kLoop) continue;
    const TypeNode& child = *f.node->child;
    const bool whole = position_ == f.child;
    const uint64_t left = f.node->count - f.index - (whole ? 0 : 1);
    const uint64_t count = std::min(left, most / child.size);
    const bool held = child.pieces < most_blocks || (whole && body_of(child).pieces <= most_blocks);
    if (count > 0 && held) found.push_back({child.size, count, child.pieces, i});
  }
}

// Where to stop walking piece by piece: where the next repetition begins of which we are in the
// midst, if it is too large for a list but regular in itself.
uint64_t TiledCursor::piecewise(uint64_t most, size_t most_blocks) const {
  for (size_t i = frames_.size(); i-- > 0;) {
    const Frame& f = frames_[i];
    if (f.node->kind != Kind::kLoop || position_ == f.child) continue;
    const TypeNode& child = *f.node->child;
    if (child.pieces < most_blocks || body_of(child).pieces > most_blocks) continue;
    const uint64_t rest = f.child + child.size - position_;
    if (f.index + 1 < f.node->count && most > rest && most - rest >= child.size) return rest;
  }
  return most;
}

Extents TiledCursor::take_regular(const Regular& by, uint64_t bytes) {
  std::vector<Extent> blocks;
  if (by.frame == kRun) return Extents(take_of_run(bytes));
  const Frame& f = frames_[by.frame];
  std::vector<Stride> loops{{bytes / by.unit, f.node->stride}};
  uint64_t body = by.unit;
  if (position_ == f.child) {
    const TypeNode* node = f.node->child.get();
    for (; node->kind == Kind::kLoop; node = node->child.get()) {
      loops.push_back({node->count, node->stride});
    }
    body = node->size;
  }
  const uint64_t from = position_;
  list(body, SIZE_MAX, blocks);
  seek(Length(from + bytes));
  return made(std::move(blocks), std::move(loops));
}

Extents TiledCursor::next(Length most_bytes, size_t most_blocks) {
  FOREBAY_ASSERT(most_blocks > 0);
  const uint64_t most = std::min(most_bytes.value, end_ - position_);
  if (most == 0) return Extents();
  std::vector<Regular> ways;
  find_regular(most, most_blocks, ways);
  const auto best = std::max_element(ways.begin(), ways.end(), [](auto& a, auto& b) {
    return a.unit * a.count < b.unit * b.count;
  });
  const uint64_t bytes = best->unit * best->count;
  if (bytes == most || best->count * best->pieces >= most_blocks) {
    return take_regular(*best, bytes);
  }
  std::vector<Extent> blocks;
  list(piecewise(most, most_blocks), most_blocks, blocks);
  return made(std::move(blocks));
}

TransferCursor::TransferCursor(const TiledMap& file, Length file_from, const TiledMap& memory,
                               Length memory_from, Length length)
    : file_(file, file_from, length), memory_(memory, memory_from, length) {}

// How both sides can go on in equal units: the pair of ways that leads furthest.
std::optional<TransferCursor::Together> TransferCursor::regular(uint64_t most, size_t most_blocks) {
  file_.find_regular(most, most_blocks, file_ways_);
  memory_.find_regular(most, most_blocks, memory_ways_);
  std::optional<Together> best;
  for (const TiledCursor::Regular& f : file_ways_) {
    for (const TiledCursor::Regular& m : memory_ways_) {
      const uint64_t both = std::min(f.unit * f.count, m.unit * m.count);
      const Wide unit = Wide(f.unit / std::gcd(f.unit, m.unit)) * m.unit;
      if (unit > Wide(both)) continue;
      const uint64_t bytes = both - both % static_cast<uint64_t>(unit);
      if (best && bytes <= best->bytes) continue;
      best = Together{f, m, bytes};
    }
  }
  if (!best || best->bytes == most) return best;
  const uint64_t pieces = std::max(best->bytes / best->file.unit * best->file.pieces,
                                   best->bytes / best->memory.unit * best->memory.pieces);
  return pieces >= most_blocks ? best : std::nullopt;
}

TransferCursor::Part TransferCursor::next(Length most_bytes, size_t most_blocks) {
  FOREBAY_ASSERT(most_blocks > 0);
  uint64_t most = std::min(most_bytes, left()).value;
  if (most == 0) return {};
  if (const auto both = regular(most, most_blocks)) {
    Extents file = file_.take_regular(both->file, both->bytes);
    return {std::move(file), memory_.take_regular(both->memory, both->bytes)};
  }
  most = std::min(file_.piecewise(most, most_blocks), memory_.piecewise(most, most_blocks));
  const Length file_from = file_.position();
  std::vector<Extent> file, memory;
  most = file_.list(most, most_blocks, file);
  const uint64_t less = memory_.list(most, most_blocks, memory);
  if (less < most) {
    file_.seek(file_from);
    file_.list(less, most_blocks, file);
  }
  return {made(std::move(file)), made(std::move(memory))};
}

}  // namespace forebay::plan
