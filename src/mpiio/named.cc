#include "mpiio/named.h"

#include <cstddef>

#include "mpiio/contents.h"

namespace forebay::mpiio {
namespace {

template <class T>
int64_t after() {
  struct Pair {
    T value;
    int index;
  };
  return offsetof(Pair, index);
}

}  // namespace

std::optional<PairType> pair_type(MPI_Datatype named) {
  if (named == MPI_FLOAT_INT) return PairType{MPI_FLOAT, MPI_INT, after<float>()};
  if (named == MPI_DOUBLE_INT) return PairType{MPI_DOUBLE, MPI_INT, after<double>()};
  if (named == MPI_LONG_INT) return PairType{MPI_LONG, MPI_INT, after<long>()};
  if (named == MPI_SHORT_INT) return PairType{MPI_SHORT, MPI_INT, after<short>()};
  if (named == MPI_2INT) return PairType{MPI_INT, MPI_INT, after<int>()};
  if (named == MPI_LONG_DOUBLE_INT) {
    return PairType{MPI_LONG_DOUBLE, MPI_INT, after<long double>()};
  }
  // Fortran's have no holes.
  const std::pair<MPI_Datatype, MPI_Datatype> twins[] = {
      {MPI_2REAL, MPI_REAL},
      {MPI_2DOUBLE_PRECISION, MPI_DOUBLE_PRECISION},
      {MPI_2INTEGER, MPI_INTEGER},
  };
  for (const auto& [pair, one] : twins) {
    if (named != pair) continue;
    const Result<int64_t> size = size_of(one);
    if (size) return PairType{one, one, *size};
  }
  return std::nullopt;
}

Result<int64_t> size_of(MPI_Datatype type) {
  MPI_Count size = 0;
  if (auto ok = checked(PMPI_Type_size_x(type, &size), "MPI_Type_size"); !ok) {
    return std::move(ok).error();
  }
  if (size < 0) return Error(EOVERFLOW, "a datatype of more bytes than MPI can count");
  return size;
}

Result<plan::TypeMap> bounded(MPI_Datatype type, const plan::TypeMap& map) {
  MPI_Count lb = 0, extent = 0;
  if (auto ok = checked(PMPI_Type_get_extent_x(type, &lb, &extent), "MPI_Type_get_extent"); !ok) {
    return std::move(ok).error();
  }
  return plan::TypeMap::resized(map, lb, extent);
}

Result<plan::TypeMap> named_map(MPI_Datatype type) {
  Result<plan::TypeMap> map = plan::TypeMap();
  if (const auto pair = pair_type(type)) {
    const Result<int64_t> value = size_of(pair->value), index = size_of(pair->index);
    if (!value || !index) return (value ? index : value).error();
    const plan::TypeMap::Block blocks[] = {{0, *value}, {pair->index_at, *index}};
    map = plan::TypeMap::indexed(blocks, plan::TypeMap::bytes(1).value());
  } else {
    const Result<int64_t> size = size_of(type);
    if (!size) return size.error();
    map = plan::TypeMap::bytes(*size);
  }
  if (!map) return map;
  return bounded(type, *map);
}

}  // namespace forebay::mpiio
