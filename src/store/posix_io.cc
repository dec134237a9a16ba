#include "store/posix_io.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "core/rows.h"
#include "store/posix_stage.h"

namespace forebay::posix {

namespace {

struct Way {
  bool write;
  uint64_t block, crumb;
};

// Memory for one run of the file.
template <size_t most>
struct Batch {
  Offset at;
  Length length;
  size_t count = 0;
  iovec pieces[most];

  // Forgets the first n bytes, which have been moved.
  void consume(size_t& first, uint64_t n) {
    at += Length(n);
    length -= Length(n);
    for (; n > 0 && n >= pieces[first].iov_len; ++first) n -= pieces[first].iov_len;
    if (n == 0) return;
    pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + n;
    pieces[first].iov_len -= n;
  }
};

// Fills a batch with memory for the file's range [at, at + length), as far as it has room.
void gather(const Memory& memory, ExtentCursor& cursor, Offset at, Length length,
            Batch<IOV_MAX>& batch) {
  batch.at = at;
  batch.length = Length(0);
  batch.count = 0;
  while (batch.length < length && batch.count < IOV_MAX) {
    const Extent piece = cursor.take(length - batch.length);
    batch.pieces[batch.count++] = {memory.at(piece.offset), piece.length.value};
    batch.length += piece.length;
  }
}

// Moves a batch by repeated calls of `call(iovec*, count, offset)`. Returns the bytes moved; fewer
// than the batch only if a call moved none, or a count that is no multiple of `block`.
template <size_t most, class Call>
Result<uint64_t> move_all(Batch<most>& batch, uint64_t block, Call&& call) {
  uint64_t moved = 0;
  for (size_t first = 0; batch.length;) {
    const ssize_t n = call(batch.pieces + first, static_cast<int>(batch.count - first),
                           static_cast<off_t>(batch.at.value));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(errno).with_done(moved);
    if (n == 0) break;
    moved += static_cast<uint64_t>(n);
    batch.consume(first, static_cast<uint64_t>(n));
    if (static_cast<uint64_t>(n) % block) break;
  }
  return moved;
}

// Memory in pieces so small that copying them costs less than telling the kernel of each.
bool is_crumbs(const Extents& shape, uint64_t crumb) {
  constexpr uint64_t kFew = 8;
  return shape.pieces() > kFew && shape.total().value / shape.pieces() < crumb;
}

// How much of the next memory fits into `most` bytes without a cut inside a piece: each may be a
// write of its own, which others must see as a whole (server/small_writes.h). 0: the first does
// not.
Length whole_pieces(ExtentCursor cursor, Length most) {
  Length fits;
  while (!cursor.done() && fits + cursor.current().length <= most) {
    const Length piece = cursor.current().length;
    fits += piece;
    cursor.advance(piece);
  }
  return fits;
}

// As move_list(), by way of a buffer that stays in the processor's cache.
template <class Call>
Result<uint64_t> move_staged(const Extents& file, const Memory& memory, Way way, Call&& call) {
  ExtentCursor places(file), cursor(memory.shape);
  // Whole pages where pages count.
  std::byte* const stage =
      way.crumb == kCrumbOfOthers ? ReadStage::pages_of_thread() : ReadStage::of_thread();
  uint64_t total = 0;
  while (!places.done()) {
    Length most(ReadStage::kBytes);
    const bool cut = way.write && (file.total() - places.position()) > most;
    if (cut) most = whole_pieces(cursor, most);
    const bool by_itself = !most;  // a piece that is longer than the stage
    if (by_itself) most = cursor.current().length;
    const Extent run = places.take(most);
    std::span<std::byte> bytes(stage, by_itself ? 0 : run.length.value);
    if (by_itself) {
      bytes = {memory.at(cursor.current().offset), run.length.value};
      cursor.advance(run.length);
    } else if (way.write) {
      copy_out(memory, cursor, bytes);
    }
    Batch<2> batch{run.offset, run.length, 1, {{bytes.data(), bytes.size()}}};  // 1 of them
    Result<uint64_t> moved = move_all(batch, way.block, call);
    const uint64_t now = moved ? *moved : moved.error().done();
    if (!way.write) copy_in(bytes.first(now), memory, cursor);
    total += now;
    if (!moved) return std::move(moved).error().with_done(total);
    if (now < run.length.value) break;
  }
  return total;
}

template <class Call>
Result<uint64_t> move_list(const Extents& file, const Memory& memory, Way way, Call&& call) {
  if (is_crumbs(memory.shape, way.crumb) ||
      (!way.write && way.block == 1 && copied_slowly(file, memory)))
    return move_staged(file, memory, way, call);
  ExtentCursor places(file), cursor(memory.shape);
  Batch<IOV_MAX> batch;
  uint64_t total = 0;
  while (!places.done()) {
    Extent run = places.take(Length(kMostBytes));
    while (!run.empty()) {
      gather(memory, cursor, run.offset, run.length, batch);
      const Length wanted = batch.length;
      Result<uint64_t> moved = move_all(batch, way.block, call);
      if (!moved) {
        const uint64_t done = total + moved.error().done();
        return std::move(moved).error().with_done(done);
      }
      total += *moved;
      if (*moved < wanted.value) return total;
      run = {run.offset + wanted, run.length - wanted};
    }
  }
  return total;
}

}  // namespace

Result<uint64_t> read_list(int fd, const Extents& file, const Memory& memory, Counter& calls,
                           IoLimits limits) {
  const int flags = limits.nowait ? RWF_NOWAIT : 0;
  return move_list(file, memory, {false, limits.block, limits.crumb},
                   [&](iovec* pieces, int count, off_t at) {
                     calls.add();
                     if (flags) return ::preadv2(fd, pieces, count, at, flags);
                     return count == 1 ? ::pread(fd, pieces->iov_base, pieces->iov_len, at)
                                       : ::preadv(fd, pieces, count, at);
                   });
}

Result<uint64_t> write_list(int fd, const Extents& file, const Memory& memory, Counter& calls,
                            IoLimits limits) {
  Result<uint64_t> moved =
      move_list(file, memory, {true, 1, limits.crumb}, [&](iovec* pieces, int count, off_t at) {
        calls.add();
        return count == 1 ? ::pwrite(fd, pieces->iov_base, pieces->iov_len, at)
                          : ::pwritev(fd, pieces, count, at);
      });
  // A write that moves nothing and names no error has no place for more.
  if (moved && *moved != file.total().value) return Error(ENOSPC).with_done(*moved);
  return moved;
}

}  // namespace forebay::posix
