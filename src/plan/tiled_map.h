// TiledMap: a TypeMap laid over the offsets of a file or the addresses of memory: a view (from a
// displacement on, tiled to the largest offset there is) or a buffer (an address and a count).
// Its bytes, in order, are its stream; a data call is a part of the view's stream and one of the
// buffer's.
//
// Invariant: every byte lies in [0, kMaxOffset), so nothing after the making can overflow.
// Immutable and cheap to copy; any thread may read it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/extents.h"
#include "core/rows.h"
#include "plan/typemap.h"

namespace forebay::plan {

class TiledMap {
 public:
  TiledMap() = default;  // no bytes

  // EINVAL: a byte below offset 0, or an extent that is not positive (unless the type is empty).
  static Result<TiledMap> view(Offset displacement, const TypeMap& filetype);
  // EINVAL: a byte outside the addresses there are. `address` may be 0 (MPI_BOTTOM).
  static Result<TiledMap> buffer(const void* address, uint64_t count, const TypeMap& type);

  // The type's bytes once, from a displacement on; EINVAL if a byte lies outside of any file.
  static Result<TiledMap> once(Offset displacement, const TypeMap& type);

  // Bytes of the stream; of a view, as many as there are up to the largest offset.
  Length total() const { return total_; }
  // Bytes of a piece, on average over the whole; 0 if there is none.
  uint64_t mean_piece() const;
  // The stream is one run.
  bool contiguous() const;
  // As of a TypeMap, from one tile to the next too.
  bool monotone() const;

  // Have both the same bytes in the same order, by a look at their nodes? No to some that have, and
  // without memory.
  bool same(const TiledMap& other) const noexcept;

  // Where byte `position` of the stream lies; position < total().
  Offset offset_of(Length position) const;
  // The smallest position from which on every byte lies at or beyond `offset`: where to append to
  // a file that ends there (rounded up to an etype by the caller).
  Length position_beyond(Offset offset) const;
  // The smallest range that holds the part; it must lie within total(). Costs nothing worth
  // mentioning if the type is monotone, and otherwise at most a look at each of its blocks.
  Extent bounds(Length from, Length length) const;

  // The part as one Extents, if it can be held in `most_blocks` blocks and any number of loops.
  // It must lie within total(). Whole repetitions of whatever is regular take a few blocks.
  std::optional<Extents> slice(Length from, Length length, size_t most_blocks) const;

  // As numbers, for another process: a few for whatever is regular, two for each block of a list,
  // and shared subtrees once. False, without a look at the rest, if they are more than `most`: then
  // none is added. decode() takes them off the front; EPROTO for what encode() did not write.
  bool encode(std::vector<int64_t>& numbers, size_t most = SIZE_MAX) const;
  static Result<TiledMap> decode(std::span<const int64_t>& numbers);
  // As encode() of a map of these pieces, one after the other (one at least), without making it.
  static void encode_list(std::span<const Extent> pieces, std::vector<int64_t>& numbers);

 private:
  friend class TiledCursor;
  TiledMap(TypeTree root, int64_t at);

  TypeTree root_;   // all repetitions
  int64_t at_ = 0;  // of the first byte
  Length total_;
};

// Walks a part of a TiledMap's stream, in order. Finding the start costs O(depth + log blocks),
// every piece O(1), and no piece an allocation. Keeps the tree alive.
class TiledCursor {
 public:
  // The part must lie within map.total().
  TiledCursor(const TiledMap& map, Length from, Length length);

  bool done() const { return position_ == end_; }
  Length position() const { return Length(position_); }  // in the map's stream
  Length left() const { return Length(end_ - position_); }

  // The next part of the stream as an Extents of at most `most_blocks` blocks, not empty unless
  // done. Where the stream is regular its loops stay loops, so it may have any number of pieces.
  Extents next(Length most_bytes, size_t most_blocks);

  // The next run of bytes, or as much of it as `most`; one that continues it is another run.
  Extent take(Length most) { return take_of_run(most.value); }
  // The same, and whole runs of the innermost loop that follow it, as far as they fit in `most`.
  Row take_row(Length most) {
    const uint64_t bytes = std::min(most.value, end_ - position_);
    if (position_ != run_start_ || bytes < 2 * run_length_ || frames_.empty() ||
        frames_.back().count == 0)
      return {take_of_run(bytes), 1, 0};
    Frame& f = frames_.back();
    const Row row{{Offset(static_cast<uint64_t>(run_at_)), Length(run_length_)},
                  std::min(f.count - f.index, bytes / run_length_),
                  f.stride};
    f.index += row.count - 1;
    run_at_ += static_cast<int64_t>(row.count - 1) * row.stride;
    position_ += row.count * run_length_;
    run_start_ = f.child = position_ - run_length_;
    if (position_ < end_) next_run();
    return row;
  }

  // The same as take_row(), and whole rows and planes that follow it likewise.
  Nest take_nest(Length most);

  // What is left of the current run.
  Length run_left() const { return Length(std::min(run_start_ + run_length_, end_) - position_); }

  // Goes to a place within the part.
  void seek(Length position);

 private:
  friend class TransferCursor;

  struct Frame {  // a node on the way down to the current run
    const TypeNode* node;
    int64_t at;      // of its first byte
    uint64_t start;  // its place in the stream
    uint64_t index;  // the child that we are in
    uint64_t child;  // that child's place in the stream
    uint64_t count;  // of a loop; 0: it is a list
    int64_t stride;
  };
  struct Regular {  // a way to walk on: `count` equal units
    uint64_t unit;
    uint64_t count;
    uint64_t pieces;  // of a unit
    size_t frame;
  };

  void descend(const TypeNode* node, uint64_t size, int64_t at, uint64_t start);
  void next_run();
  Extent take_of_run(uint64_t most);
  void list_siblings(uint64_t end, size_t most_blocks, std::vector<Extent>& blocks);
  uint64_t list(uint64_t most, size_t most_blocks, std::vector<Extent>& blocks);
  void find_regular(uint64_t most, size_t most_blocks, std::vector<Regular>& found) const;
  uint64_t piecewise(uint64_t most, size_t most_blocks) const;
  Extents take_regular(const Regular& by, uint64_t bytes);

  TypeTree root_;
  int64_t at_ = 0;
  uint64_t position_ = 0;
  uint64_t end_ = 0;
  std::vector<Frame> frames_;  // those of loops and lists, outermost first
  int64_t run_at_ = 0;         // the current run
  uint64_t run_start_ = 0, run_length_ = 0;
};

// A data call's two sides, cut at the same places: parts of equal length, as regular as both allow.
class TransferCursor {
 public:
  struct Part {
    Extents file;
    Extents memory;
  };
  TransferCursor(const TiledMap& file, Length file_from, const TiledMap& memory, Length memory_from,
                 Length length);

  bool done() const { return file_.done(); }
  Length left() const { return file_.left(); }
  // The next part: at most so many bytes, and so many blocks on either side; the totals are equal.
  Part next(Length most_bytes, size_t most_blocks);

 private:
  struct Together {
    TiledCursor::Regular file, memory;
    uint64_t bytes;
  };
  std::optional<Together> regular(uint64_t most, size_t most_blocks);

  TiledCursor file_, memory_;
  std::vector<TiledCursor::Regular> file_ways_, memory_ways_;
};

}  // namespace forebay::plan
