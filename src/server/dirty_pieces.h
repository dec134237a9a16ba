// DirtyPieces: bytes of one file that were acknowledged and are not in the Store yet, as disjoint
// pieces by rising offset. Newer bytes take the place of older ones.
//
// A piece refers to a part of a block, which holds the whole stream of one write and counts against
// a Budget from its making until the last piece, read or batch that refers to it is gone.
//
// DirtyPieces and Piece are values without locks; Budget and Block: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/op.h"

namespace forebay::server {

// The memory that acknowledged writes may take.
class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}
  bool take(uint64_t bytes);
  void give_back(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t limit() const { return limit_; }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

// What so many bytes in so many pieces take of it.
uint64_t cost_of(uint64_t bytes, uint64_t pieces);

// The stream of one write. The budget must outlive it.
class Block {
 public:
  // A copy of the memory of a write; null if the budget does not allow for it and its pieces.
  static std::shared_ptr<const Block> copy_of(const Memory& memory, uint64_t pieces,
                                              Budget& budget);
  ~Block() { budget_.give_back(cost_); }
  Block(const Block&) = delete;
  const std::byte* data() const { return bytes_.get(); }

 private:
  Block(std::unique_ptr<std::byte[]> bytes, uint64_t cost, Budget& budget)
      : bytes_(std::move(bytes)), cost_(cost), budget_(budget) {}
  const std::unique_ptr<std::byte[]> bytes_;
  const uint64_t cost_;
  Budget& budget_;
};

// Who wrote it, and with which right: proved good by the Store before (behind_store.h).
struct Writer {
  CallerRef caller;
  Handle handle;
  Right right;
};

struct Piece {
  Extent file;
  const std::byte* data = nullptr;
  std::shared_ptr<const Block> block;
  std::shared_ptr<const Writer> writer;
};

// A part of a read that is to be copied from a piece.
struct PieceCopy {
  std::shared_ptr<const Block> block;  // keeps `from` alive
  const std::byte* from;
  uint64_t place;  // in the stream of the read
  uint64_t length;
};

class DirtyPieces {
 public:
  bool empty() const { return pieces_.empty(); }
  size_t size() const { return pieces_.size(); }

  void put(Piece piece);  // not empty
  void erase(Offset at);  // the piece that begins there, which must be there
  // Takes out the pieces that touch each other over so many bytes.
  DirtyPieces take_runs(uint64_t least);
  // Calls fn(const Piece&) for each, by rising offset. A piece stays where it is until it is erased
  // or put over, also when the whole is moved.
  template <class Fn>
  void each(Fn&& fn) const {
    for (const auto& [offset, piece] : pieces_) fn(piece);
  }

  // Do they share a byte with these extents? Never no if they do; for extents of very many pieces
  // by their bounds.
  bool touch(const Extents& extents) const;

  // The piece that holds the byte; and where the first piece behind it begins.
  const Piece* at(uint64_t offset) const;
  uint64_t next(uint64_t offset) const;

 private:
  using Map = std::map<uint64_t, Piece>;
  bool touch(const Extent& extent) const;
  Map::const_iterator holding(uint64_t offset) const;  // or the first one behind

  Map pieces_;  // by offset
};

// The pieces of a write, in the order of its stream; nothing if the budget does not allow for them.
// Large ones have blocks of their own: what is written of a block gives no memory back before all
// of it is.
std::optional<std::vector<Piece>> copy_pieces(const Request& write,
                                              const std::shared_ptr<const Writer>& writer,
                                              Budget& budget);

// Every byte of these extents, from `newer` or else from `older`; nothing if a byte is in neither,
// or it takes too many copies to be worth it.
std::optional<std::vector<PieceCopy>> gather(const DirtyPieces& newer, const DirtyPieces& older,
                                             const Extents& extents);

}  // namespace forebay::server
