#include "store/posix_direct.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <new>

#include "store/posix_io.h"

namespace forebay::posix {

namespace {

// A buffer for one call: from the pool if one is free.
class Stage {
 public:
  explicit Stage(const DirectParts& parts) : parts_(parts) {}
  ~Stage() { std::free(own_); }
  Stage(const Stage&) = delete;

  std::span<std::byte> bytes() {
    if (!pooled_ && !own_) pooled_ = parts_.staging.try_take();
    if (pooled_) return pooled_.bytes();
    if (!own_) own_ = static_cast<std::byte*>(std::aligned_alloc(kAlign, kStage));
    if (!own_) throw std::bad_alloc();
    return {own_, kStage};
  }

 private:
  static constexpr size_t kAlign = 64_KiB;
  const DirectParts& parts_;
  Buffer pooled_;
  std::byte* own_ = nullptr;
};

bool is_aligned(const Memory& memory, uint64_t block) {
  if (memory.shape.pieces() > IOV_MAX) return false;
  std::vector<iovec> pieces;
  return aligned_pieces(memory, block, IOV_MAX, pieces);
}

// ---- Writes ----

class Writer {
 public:
  Writer(DirectFile fds, const Memory& memory, const DirectParts& parts)
      : fds_(fds), memory_(memory), parts_(parts), stage_(parts) {}

  // The next bytes of the stream, to this range.
  Result<void> run(Extent range) {
    const uint64_t block = parts_.block;
    const uint64_t at = range.offset.value, end = range.end().value;
    const uint64_t first = round_up(at, block), last = round_down(end, block);
    if (first >= last) return edge(at, end);
    if (auto ok = edge(at, first); !ok) return ok;
    if (auto ok = blocks(first, last); !ok) return ok;
    return edge(last, end);
  }

  // Edges are on the device, and not in the page cache, when the write ends.
  Result<void> sync_edges() {
    if (edge_end_ <= edge_begin_) return {};
    const auto at = static_cast<off_t>(edge_begin_), n = static_cast<off_t>(edge_end_) - at;
    constexpr unsigned kAll =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    while (::sync_file_range(fds_.buffered, at, n, kAll)) {
      if (errno != EINTR) return Error(errno, "sync_file_range");
    }
    ::posix_fadvise(fds_.buffered, at, n, POSIX_FADV_DONTNEED);
    return {};
  }

  uint64_t done() const { return done_; }

 private:
  Result<void> edge(uint64_t at, uint64_t end) {
    if (at >= end) return {};
    parts_.edges.add();
    edge_begin_ = std::min(edge_begin_, round_down(at, parts_.block));
    edge_end_ = std::max(edge_end_, round_up(end, parts_.block));
    return write(fds_.buffered, at, memory_.slice(Length(done_), Length(end - at)));
  }

  Result<void> blocks(uint64_t at, uint64_t end) {
    while (at < end) {
      const uint64_t n = std::min(end - at, kMostBytes);
      const Memory part = memory_.slice(Length(done_), Length(n));
      auto ok = is_aligned(part, parts_.block) ? write(fds_.direct, at, part) : staged(at, part);
      if (!ok) return ok;
      at += n;
    }
    return {};
  }

  Result<void> staged(uint64_t at, const Memory& part) {
    const std::span<std::byte> stage = stage_.bytes();
    const uint64_t total = part.shape.total().value;
    for (uint64_t from = 0; from < total; from += stage.size()) {
      const uint64_t n = std::min<uint64_t>(stage.size(), total - from);
      copy_out(part.slice(Length(from), Length(n)), stage.first(n));
      parts_.staged.add();
      if (auto ok = write(fds_.direct, at + from, Memory::of(stage.first(n))); !ok) return ok;
    }
    return {};
  }

  Result<void> write(int fd, uint64_t at, const Memory& part) {
    const Length n = part.shape.total();
    Result<uint64_t> wrote = write_list(fd, Extents({Offset(at), n}), part, parts_.calls);
    done_ += wrote ? *wrote : wrote.error().done();
    if (!wrote) return std::move(wrote).error();
    return {};
  }

  const DirectFile fds_;
  const Memory& memory_;
  const DirectParts& parts_;
  Stage stage_;
  uint64_t done_ = 0;
  uint64_t edge_begin_ = UINT64_MAX, edge_end_ = 0;
};

// ---- Reads ----

class Reader {
 public:
  Reader(DirectFile fds, const Extents& file, const Memory& memory, const DirectParts& parts)
      : fds_(fds), memory_(memory), parts_(parts), stage_(parts) {
    // Of a list with small gaps more is read at once than the next piece needs.
    constexpr uint64_t kMostGaps = 4;
    const Extent bounds = file.bounds();
    if (bounds.length.value / kMostGaps <= file.total().value) reach_ = bounds.end().value;
  }

  // The next bytes of the stream, from this range; false at the end of file.
  Result<bool> run(Extent range) {
    const uint64_t block = parts_.block;
    uint64_t at = range.offset.value;
    const uint64_t end = range.end().value;
    while (at < end) {
      const uint64_t before = done_;
      const uint64_t n = std::min(end - at, kMostBytes);
      const Memory part = memory_.slice(Length(done_), Length(n));
      const bool whole = at % block == 0 && n % block == 0;
      auto ok = whole && is_aligned(part, block) ? plain(at, part) : staged(at, part, end);
      if (!ok || !*ok) return ok;
      at += done_ - before;
    }
    return true;
  }

  uint64_t done() const { return done_; }

 private:
  Result<bool> plain(uint64_t at, const Memory& part) {
    Result<uint64_t> n = read(at, part);
    if (!n) return std::move(n).error();
    done_ += *n;
    return *n == part.shape.total().value;
  }

  // As much of the part as one window holds; a part that is longer comes again.
  Result<bool> staged(uint64_t at, const Memory& part, uint64_t end) {
    if (at < window_ || at >= window_ + asked_) {
      if (auto ok = load(at, std::max(end, reach_)); !ok) return std::move(ok).error();
    }
    const uint64_t from = at - window_, wanted = part.shape.total().value;
    if (from >= got_) return false;
    const uint64_t n = std::min(wanted, got_ - from);
    copy_in(stage_.bytes().subspan(from, n), part);
    done_ += n;
    return n == wanted || got_ == asked_;
  }

  Result<void> load(uint64_t at, uint64_t end) {
    const std::span<std::byte> stage = stage_.bytes();
    window_ = round_down(at, parts_.block);
    const uint64_t last =
        std::min(round_up(end, parts_.block), round_down(kMaxOffset, parts_.block));
    asked_ = std::min<uint64_t>(stage.size(), last - window_);
    got_ = 0;
    if (asked_ == 0) return {};  // no file reaches so far
    parts_.staged.add();
    Result<uint64_t> n = read(window_, Memory::of(stage.first(asked_)));
    if (!n) return std::move(n).error();
    got_ = *n;
    return {};
  }

  Result<uint64_t> read(uint64_t at, const Memory& to) {
    return read_list(fds_.direct, Extents({Offset(at), to.shape.total()}), to, parts_.calls,
                     {.nowait = false, .block = parts_.block});
  }

  const DirectFile fds_;
  const Memory& memory_;
  const DirectParts& parts_;
  Stage stage_;
  uint64_t done_ = 0;
  uint64_t reach_ = 0;                         // read at once up to here, if there is room
  uint64_t window_ = 0, asked_ = 0, got_ = 0;  // what the stage holds
};

}  // namespace

bool aligned_pieces(const Memory& memory, uint64_t block, size_t most, std::vector<iovec>& pieces) {
  pieces.clear();
  ExtentCursor cursor(memory.shape);
  while (!cursor.done()) {
    const Extent piece = cursor.take(memory.shape.total());
    std::byte* const at = memory.at(piece.offset);
    if (reinterpret_cast<uintptr_t>(at) % kMemoryUnit || piece.length.value % block ||
        pieces.size() == most)
      return false;
    pieces.push_back({at, piece.length.value});
  }
  return true;
}

Result<uint64_t> write_direct(DirectFile fds, const Extents& file, const Memory& memory,
                              const DirectParts& parts) {
  Writer writer(fds, memory, parts);
  for (ExtentCursor places(file); !places.done();) {
    if (auto ok = writer.run(places.take(file.total())); !ok)
      return std::move(ok).error().with_done(writer.done());
  }
  if (auto ok = writer.sync_edges(); !ok) return std::move(ok).error();
  return writer.done();
}

Result<uint64_t> read_direct(DirectFile fds, const Extents& file, const Memory& memory,
                             const DirectParts& parts) {
  Reader reader(fds, file, memory, parts);
  for (ExtentCursor places(file); !places.done();) {
    Result<bool> more = reader.run(places.take(file.total()));
    if (!more) return std::move(more).error();
    if (!*more) break;
  }
  return reader.done();
}

}  // namespace forebay::posix
