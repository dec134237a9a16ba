// The serial oracle: what the file holds, what a view shows of it, and which accesses of different
// ranks MPI leaves undefined.
#pragma once

#include <cstdint>
#include <vector>

#include "type.h"

namespace fuzz {

using Bytes = std::vector<unsigned char>;

struct Span {
  int64_t at;
  int64_t length;
};
using Spans = std::vector<Span>;

int64_t end_of(const Spans& spans);

struct View {
  int64_t disp = 0;
  TypePtr etype, filetype;

  // The bytes of the file behind `length` bytes of the view's stream, in the stream's order.
  Spans spans(int64_t stream, int64_t length) const;
  // How many etypes lie before `size`; -1 if one is cut there, or if the
  // file ends before the view begins.
  int64_t etypes_before(int64_t size) const;
};

// Whether `got` is what the oracle expects. What was never written is undefined in MPI; the oracle
// has zeros there and writes none, and unless `zeros` are asked for any byte will do.
bool same(const Bytes& expected, const Bytes& got, bool zeros);
inline bool same(unsigned char expected, unsigned char got, bool zeros) {
  return expected == got || (expected == 0 && !zeros);
}

class FileModel {
 public:
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  void resize(int64_t size) { bytes_.resize(static_cast<size_t>(size)); }
  void write(const Spans& spans, const Bytes& data);
  // What lies before the end of the file; the rest of the spans is left out.
  Bytes read(const Spans& spans) const;
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

// Since the last fence (in nonatomic mode sync, barrier, sync): who wrote and read which byte, who
// made the file longer, who read beyond its end. Two ranks may share a byte only as readers. A rank
// alone is in order with itself, except with operations of its own that are still pending.
class Conflicts {
 public:
  // overlapping_reads: two ranks may read the same byte.
  Conflicts(int64_t limit, int ranks, bool overlapping_reads);
  void fence(int64_t file_size);

  bool allows(int rank, bool write, const Spans& spans) const;
  // pending_id: 0 if it is over.
  void add(int rank, bool write, const Spans& spans, int pending_id);
  void complete(int pending_id);

  // A rank that asks for the size sees a change by another as a reader beyond the end would.
  void observe_size(int rank) { reads_beyond_[static_cast<size_t>(rank)] = true; }
  // Nobody but `rank` has made the file longer since the fence, and nothing that does is pending.
  bool size_known_to(int rank) const;
  bool size_known() const;

 private:
  struct Pending {
    int id;
    int rank;
    bool write;
    Spans spans;
  };
  // Whether what it does depends on, or changes, where the file ends. What a rank has written
  // itself is there for it, wherever the file ends.
  bool beyond(int rank, bool write, const Spans& spans) const;

  std::vector<int8_t> writer_;     // -1: none
  std::vector<uint16_t> readers_;  // a bit for each rank
  std::vector<bool> extends_, reads_beyond_;
  std::vector<Pending> pending_;
  int64_t fence_size_ = 0;
  const bool overlapping_reads_;
};

}  // namespace fuzz
