// MergedRequest: one request of a Store made of several touching ones of one file, and how its
// result is shared out among them.
//
// The pieces of all parts are put in the order of the file, and those that continue each other
// become one. The memory side is a list of the parts' own pieces, or a staged buffer: for small
// pieces one copy is cheaper than a long list, and where reads overlap it is the only way to read
// each byte once.
//
// Not thread-safe; lives from make() to share().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer_pool.h"
#include "core/op.h"

namespace forebay::server {

// When to stage a batch in a buffer rather than to hand out a list of its pieces.
struct Staging {
  uint64_t piece = 0;  // pieces up to this size, on average,
  uint64_t batch = 0;  // in batches up to this size (and no larger than a buffer)
};

// May a request be merged at all, and how many pieces does it then have? 0: it goes alone. A write
// that does not simply rise through the file may write a byte twice, and the later one counts; one
// that owns its holes is for sieving, and owns them alone.
uint32_t mergeable_pieces(const Request& request);

class MergedRequest {
 public:
  // The parts: reads or writes, each with mergeable_pieces(); they must outlive this. Nothing if it
  // needs a staged buffer and there is none: then each goes alone.
  static std::optional<MergedRequest> make(std::vector<const Request*> parts, BufferPool& pool,
                                           Staging staging);

  Request request() const;

  // The whole came back with so many bytes: brings them to where they belong. Then count(i) is what
  // part i would have got alone.
  void share(uint64_t count);
  uint64_t count(size_t part) const { return counts_[part]; }

 private:
  struct Piece {
    Extent file;
    std::byte* memory;
  };
  MergedRequest() = default;
  void gather();
  void lay_out();
  bool stage(BufferPool& pool, Staging staging);
  void copy_out(uint64_t count) const;

  std::vector<const Request*> parts_;
  std::vector<Piece> pieces_;  // in the order of the file
  Extents file_;               // what is read or written
  bool overlaps_ = false;
  Buffer staged_;
  std::vector<uint64_t> counts_;
};

}  // namespace forebay::server
