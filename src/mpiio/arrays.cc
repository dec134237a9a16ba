#include "mpiio/arrays.h"

#include <array>
#include <vector>

namespace forebay::mpiio {
namespace {

using plan::TypeMap;

// An array's part, built up from the dimension whose index runs fastest.
class ArrayPart {
 public:
  explicit ArrayPart(const TypeMap& element) : part_(element), stride_(element.extent()) {}

  // Which indices of a dimension are in the part.
  struct Blocks {
    int64_t first = 0;    // index at which the first block begins
    int64_t repeats = 1;  // whole blocks
    int64_t apart = 0;    // from one to the next
    int64_t length = 0;
    int64_t rest = 0;  // of the block after the whole ones
  };
  Result<void> add(int64_t size, const Blocks& in) {
    const int64_t rest_index = in.rest > 0 ? in.first + in.repeats * in.apart : 0;
    const Result<int64_t> apart = bytes(in.repeats > 1 ? in.apart : 0), at = bytes(in.first),
                          rest_at = bytes(rest_index), next = bytes(size);
    if (!apart || !at || !rest_at || !next) return Error(EOVERFLOW, "an array beyond 63 bits");
    Result<TypeMap> whole = rows(in.length);
    if (whole) whole = TypeMap::vector(in.repeats, 1, *apart, *whole);
    const Result<TypeMap> rest = rows(in.rest);
    if (!whole || !rest) return (whole ? rest : whole).error();
    const std::array members{TypeMap::Member{*at, 1, *whole}, TypeMap::Member{*rest_at, 1, *rest}};
    Result<TypeMap> both = TypeMap::structure(members);
    if (!both) return both.error();
    part_ = std::move(*both);
    stride_ = *next;
    return {};
  }
  Result<TypeMap> finish() const { return TypeMap::resized(part_, 0, stride_); }

 private:
  Result<TypeMap> rows(int64_t n) const { return TypeMap::vector(n, 1, stride_, part_); }
  Result<int64_t> bytes(int64_t elements) const {
    int64_t product;
    if (__builtin_mul_overflow(elements, stride_, &product)) return Error(EOVERFLOW);
    return product;
  }

  TypeMap part_;
  int64_t stride_;  // bytes from one index of the next dimension to the next
};

// The dimensions from the fastest to the slowest.
size_t dimension(size_t i, size_t n, int64_t order) {
  return order == MPI_ORDER_FORTRAN ? i : n - 1 - i;
}

int64_t blocks_in(int64_t size, int64_t length) {
  return (size + length - 1) / length;
}

// Which indices of a dimension process `at` of `processes` holds, in blocks dealt out in turn.
ArrayPart::Blocks dealt(int64_t size, int64_t length, int64_t processes, int64_t at) {
  const int64_t all = blocks_in(size, length);
  const int64_t mine = all > at ? (all - at - 1) / processes + 1 : 0;
  ArrayPart::Blocks blocks{at * length, mine, processes * length, length, 0};
  const bool last_is_mine = mine > 0 && (all - 1) % processes == at;
  if (last_is_mine && size % length != 0) {
    --blocks.repeats;
    blocks.rest = size % length;
  }
  return blocks;
}

int64_t block_length(int64_t distribution, int64_t argument, int64_t size, int64_t processes) {
  if (distribution == MPI_DISTRIBUTE_NONE) return size;
  if (argument != MPI_DISTRIBUTE_DFLT_DARG) return argument;
  return distribution == MPI_DISTRIBUTE_BLOCK ? blocks_in(size, processes) : 1;
}

}  // namespace

Result<TypeMap> subarray_map(Contents& contents, const TypeMap& of) {
  const int64_t n = contents.integer();
  const std::vector<int64_t> sizes = contents.counts(n), subsizes = contents.counts(n),
                             starts = contents.counts(n);
  const int64_t order = contents.integer();
  ArrayPart part(of);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t d = dimension(i, sizes.size(), order);
    auto ok = part.add(sizes[d], {.first = starts[d], .length = subsizes[d]});
    if (!ok) return std::move(ok).error();
  }
  return part.finish();
}

Result<TypeMap> darray_map(Contents& contents, const TypeMap& of) {
  int64_t processes = contents.integer(), rank = contents.integer();
  const int64_t n = contents.integer();
  const std::vector<int64_t> sizes = contents.counts(n), distributions = contents.integers(n),
                             arguments = contents.integers(n), grid = contents.integers(n);
  const int64_t order = contents.integer();
  // The grid of processes is in row-major order, whatever the array's.
  std::vector<int64_t> place(sizes.size());
  for (size_t i = 0; i < place.size(); ++i) {
    processes /= grid[i];
    place[i] = rank / processes;
    rank %= processes;
  }
  ArrayPart part(of);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t d = dimension(i, sizes.size(), order);
    const int64_t length = block_length(distributions[d], arguments[d], sizes[d], grid[d]);
    if (auto ok = part.add(sizes[d], dealt(sizes[d], length, grid[d], place[d])); !ok) {
      return std::move(ok).error();
    }
  }
  return part.finish();
}

}  // namespace forebay::mpiio
