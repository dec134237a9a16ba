#include "server/merged_request.h"

#include <algorithm>
#include <cstring>

namespace forebay::server {

namespace {

// A list of more pieces gains little by being merged with others.
constexpr uint64_t kMostPieces = 256;

bool ascends(const Extents& file) {
  Offset end;
  for (ExtentCursor c(file); !c.done();) {
    const Extent piece = c.take(file.total());
    if (piece.offset < end) return false;
    end = piece.end();
  }
  return true;
}

// Of a stream that ends at the file's end: the place of its first byte that is not there.
uint64_t before(const Extents& file, Offset end) {
  ExtentCursor c(file);
  while (!c.done()) {
    const Extent piece = c.current();
    if (piece.end() > end) {
      return c.position().value + (piece.offset < end ? (end - piece.offset).value : 0);
    }
    c.advance(piece.length);
  }
  return file.total().value;
}

}  // namespace

uint32_t mergeable_pieces(const Request& r) {
  const uint64_t pieces = std::max(r.file.pieces(), r.memory.shape.pieces());
  // Whoever does not own its holes is not sieved, whatever its client would like.
  constexpr uint32_t kNothingHere = kFlagSieve | kFlagNoSieve;
  if (pieces > kMostPieces || (r.flags & ~kNothingHere) != 0 || r.owns_holes) return 0;
  if (r.op == Op::write && !r.file.contiguous() && !ascends(r.file)) return 0;
  return static_cast<uint32_t>(pieces);
}

std::optional<MergedRequest> MergedRequest::make(std::vector<const Request*> parts,
                                                 BufferPool& pool, Staging staging) {
  MergedRequest m;
  m.parts_ = std::move(parts);
  m.gather();
  m.lay_out();
  if (!m.stage(pool, staging)) return std::nullopt;
  return m;
}

void MergedRequest::gather() {
  pieces_.reserve(parts_.size());
  for (const Request* part : parts_) {
    const Memory& memory = part->memory;
    walk_pairs(part->file, memory.shape, [&](Extent file, Extent m) {
      pieces_.push_back({file, memory.at(m.offset)});
      return true;
    });
  }
  const auto lower = [](const Piece& a, const Piece& b) { return a.file.offset < b.file.offset; };
  if (!std::ranges::is_sorted(pieces_, lower)) std::ranges::stable_sort(pieces_, lower);
}

// What is read is each byte once; what is written is what there is, in this order.
void MergedRequest::lay_out() {
  const bool read = parts_.front()->op == Op::read;
  std::vector<Extent> runs;
  Offset end;
  for (const Piece& piece : pieces_) {
    overlaps_ |= piece.file.offset < end;
    end = std::max(end, piece.file.end());
    if (read && !runs.empty() && piece.file.offset <= runs.back().end()) {
      runs.back().length = end - runs.back().offset;
    } else {
      runs.push_back(piece.file);
    }
  }
  file_ = Extents::make(std::move(runs)).value();  // parts of valid Extents
}

// False: it must be staged, and cannot be.
bool MergedRequest::stage(BufferPool& pool, Staging staging) {
  const uint64_t total = file_.total().value;
  const bool read = parts_.front()->op == Op::read;
  const bool must = read && overlaps_;
  const bool small = total <= staging.batch && total / pieces_.size() <= staging.piece;
  if (!must && !small) return true;
  if (total <= pool.buffer_size()) staged_ = pool.try_take();
  if (!staged_) return !must;
  if (!read) {
    std::byte* to = staged_.bytes().data();
    for (const Piece& piece : pieces_) {
      std::memcpy(to, piece.memory, piece.file.length.value);
      to += piece.file.length.value;
    }
  }
  return true;
}

Request MergedRequest::request() const {
  const Request& first = *parts_.front();
  Request r;
  r.op = first.op;
  r.caller = first.caller;
  r.handle = first.handle;
  r.right = first.right;
  r.file = file_;
  if (staged_) {
    r.memory = Memory::of(staged_.bytes().first(file_.total().value));
    return r;
  }
  std::vector<Extent> blocks;
  blocks.reserve(pieces_.size());
  for (const Piece& piece : pieces_) {
    blocks.push_back({Offset(reinterpret_cast<uintptr_t>(piece.memory)), piece.file.length});
  }
  r.memory = {nullptr, Extents::make(std::move(blocks)).value()};  // addresses of this process
  return r;
}

void MergedRequest::share(uint64_t count) {
  counts_.clear();
  if (count == file_.total().value) {
    for (const Request* part : parts_) counts_.push_back(part->file.total().value);
  } else {
    ExtentCursor c(file_);
    c.advance(Length(count));
    const Offset end = c.current().offset;
    for (const Request* part : parts_) counts_.push_back(before(part->file, end));
  }
  if (staged_ && parts_.front()->op == Op::read) copy_out(count);
  staged_.release();
}

// Pieces and runs both rise, and every piece lies within a run.
void MergedRequest::copy_out(uint64_t count) const {
  const std::byte* const from = staged_.bytes().data();
  ExtentCursor run(file_);
  uint64_t start = 0;  // of the run, in the buffer
  for (const Piece& piece : pieces_) {
    while (run.current().end() <= piece.file.offset) {
      start += run.current().length.value;
      run.advance(run.current().length);
    }
    const uint64_t at = start + (piece.file.offset - run.current().offset).value;
    if (at >= count) return;
    std::memcpy(piece.memory, from + at, std::min(piece.file.length.value, count - at));
  }
}

}  // namespace forebay::server
