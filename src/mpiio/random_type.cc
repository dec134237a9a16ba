#include "mpiio/random_type.h"

#include <algorithm>
#include <initializer_list>

namespace forebay::mpiio {
namespace {

constexpr size_t kMostElements = 2000;

struct Pair {
  MPI_Datatype pair, value, index;
};

std::vector<Pair> pairs() {
  return {{MPI_FLOAT_INT, MPI_FLOAT, MPI_INT},
          {MPI_DOUBLE_INT, MPI_DOUBLE, MPI_INT},
          {MPI_LONG_INT, MPI_LONG, MPI_INT},
          {MPI_SHORT_INT, MPI_SHORT, MPI_INT},
          {MPI_2INT, MPI_INT, MPI_INT},
          {MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE, MPI_INT},
          {MPI_2INTEGER, MPI_INTEGER, MPI_INTEGER},
          {MPI_2DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION}};
}

template <class To, class From>
std::vector<To> as(const std::vector<From>& from) {
  return std::vector<To>(from.begin(), from.end());
}

bool is_wild(const RandomType& t) {
  MPI_Count lb = 0, extent = 0;
  MPI_Type_get_extent_x(t.type, &lb, &extent);
  return extent <= 0 || t.elements.empty();
}

bool small(const RandomType& t) {
  MPI_Count lb = 0, extent = 0, true_lb = 0, true_extent = 0;
  MPI_Type_get_extent_x(t.type, &lb, &extent);
  MPI_Type_get_true_extent_x(t.type, &true_lb, &true_extent);
  return std::max({std::abs(lb), std::abs(extent), std::abs(true_lb), true_extent}) < 100000;
}

}  // namespace

RandomType RandomTypes::make(int depth) {
  for (;;) {
    RandomType t = depth == 0 ? named() : derived(depth);
    if (t.type == MPI_DATATYPE_NULL) {  // Open MPI makes no darray of an empty type
      t.owned = false;
      continue;
    }
    t.wild = t.wild || is_wild(t);
    if (t.elements.size() <= kMostElements && small(t)) return t;
  }
}

RandomType RandomTypes::named() {
  RandomType t;
  const MPI_Datatype simple[] = {MPI_CHAR,     MPI_BYTE,   MPI_SHORT,     MPI_INT,
                                 MPI_LONG,     MPI_FLOAT,  MPI_DOUBLE,    MPI_LONG_DOUBLE,
                                 MPI_C_BOOL,   MPI_AINT,   MPI_INTEGER,   MPI_REAL,
                                 MPI_UINT64_T, MPI_OFFSET, MPI_C_COMPLEX, MPI_DOUBLE_COMPLEX};
  const int kind = pick(0, 9);
  if (kind == 0) {
    const int which = pick(0, 2);
    if (which == 0) MPI_Type_create_f90_real(15, 307, &t.type);
    if (which == 1) MPI_Type_create_f90_complex(6, 30, &t.type);
    if (which == 2) MPI_Type_create_f90_integer(9, &t.type);
    t.elements = {t.type};
    t.made = "f90";
  } else if (kind <= 3) {
    const auto all = pairs();
    const auto& p = all[static_cast<size_t>(pick(0, static_cast<int>(all.size()) - 1))];
    t.type = p.pair;
    t.elements = {p.value, p.index};
    t.made = "pair";
  } else {
    t.type = simple[pick(0, static_cast<int>(std::size(simple)) - 1)];
    t.elements = {t.type};
    t.made = "named";
  }
  if (t.made == "f90") return t;
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  MPI_Type_get_name(t.type, name, &length);
  t.made = name;
  return t;
}

void RandomTypes::repeat(RandomType& to, const RandomType& of, int64_t count) {
  for (int64_t i = 0; i < count && to.elements.size() <= kMostElements; ++i) {
    to.elements.insert(to.elements.end(), of.elements.begin(), of.elements.end());
  }
}

RandomType RandomTypes::derived(int depth) {
  const RandomType of = make(depth - 1);
  RandomType to;
  to.owned = true;
  switch (pick(0, 9)) {
    case 0:
      MPI_Type_dup(of.type, &to.type);
      repeat(to, of, 1);
      to.made = "dup";
      break;
    case 1: {
      const int n = few(6);
#if MPI_VERSION >= 4
      if (large()) {
        MPI_Type_contiguous_c(n, of.type, &to.type);
      } else
#endif
        MPI_Type_contiguous(n, of.type, &to.type);
      repeat(to, of, n);
      to.made = "contiguous " + std::to_string(n);
      break;
    }
    case 2:
    case 3:
      vector(to, of);
      break;
    case 4:
      indexed(to, of);
      break;
    case 5:
      indexed_block(to, of);
      break;
    case 6:
      structure(to, of, depth);
      break;
    case 7:
      subarray(to, of);
      break;
    case 8:
      darray(to, of);
      break;
    default:
      resized(to, of);
  }
  to.wild = to.wild || of.wild;
  to.made += " of (" + of.made + ")";
  return to;
}

void RandomTypes::vector(RandomType& to, const RandomType& of) {
  const int n = few(5), block = few(4), stride = pick(-3, 8);
  const bool bytes = pick(0, 1) == 0;
  to.wild = stride == -1;
#if MPI_VERSION >= 4
  if (large()) {
    (bytes ? MPI_Type_create_hvector_c : MPI_Type_vector_c)(n, block, stride, of.type, &to.type);
  } else
#endif
      if (bytes) {
    MPI_Type_create_hvector(n, block, stride * 11, of.type, &to.type);
  } else {
    MPI_Type_vector(n, block, stride, of.type, &to.type);
  }
  repeat(to, of, int64_t{n} * block);
  to.made = (bytes ? "hvector " : "vector ") + std::to_string(n) + "x" + std::to_string(block) +
            " by " + std::to_string(stride);
}

void RandomTypes::indexed(RandomType& to, const RandomType& of) {
  const int n = few(5);
  std::vector<int> lengths, at;
  for (int i = 0; i < n; ++i) {
    lengths.push_back(few(3));
    at.push_back(pick(-10, 20));
    repeat(to, of, lengths.back());
  }
  const bool bytes = pick(0, 1) == 0;
#if MPI_VERSION >= 4
  if (large()) {
    (bytes ? MPI_Type_create_hindexed_c : MPI_Type_indexed_c)(
        n, as<MPI_Count>(lengths).data(), as<MPI_Count>(at).data(), of.type, &to.type);
  } else
#endif
      if (bytes) {
    MPI_Type_create_hindexed(n, lengths.data(), as<MPI_Aint>(at).data(), of.type, &to.type);
  } else {
    MPI_Type_indexed(n, lengths.data(), at.data(), of.type, &to.type);
  }
  to.made = bytes ? "hindexed" : "indexed";
  for (size_t i = 0; i < at.size(); ++i) {
    to.made += " " + std::to_string(lengths[i]) + "@" + std::to_string(at[i]);
  }
}

void RandomTypes::indexed_block(RandomType& to, const RandomType& of) {
  const int n = few(5), block = few(3);
  std::vector<int> at;
  for (int i = 0; i < n; ++i) at.push_back(pick(-10, 20));
  const bool bytes = pick(0, 1) == 0;
#if MPI_VERSION >= 4
  if (large()) {
    (bytes ? MPI_Type_create_hindexed_block_c : MPI_Type_create_indexed_block_c)(
        n, block, as<MPI_Count>(at).data(), of.type, &to.type);
  } else
#endif
      if (bytes) {
    MPI_Type_create_hindexed_block(n, block, as<MPI_Aint>(at).data(), of.type, &to.type);
  } else {
    MPI_Type_create_indexed_block(n, block, at.data(), of.type, &to.type);
  }
  repeat(to, of, int64_t{n} * block);
  to.made = std::string(bytes ? "hindexed_block " : "indexed_block ") + std::to_string(block);
  for (const int a : at) to.made += " @" + std::to_string(a);
}

void RandomTypes::structure(RandomType& to, const RandomType& of, int depth) {
  std::vector<RandomType> others;
  std::vector<MPI_Datatype> types;
  std::vector<int> lengths;
  std::vector<MPI_Aint> at;
  for (int i = few(4); i > 0; --i) {
    const RandomType* member = &of;
    if (pick(0, 1) == 0) {
      others.push_back(make(pick(0, depth - 1)));
      member = &others.back();
    }
    types.push_back(member->type);
    lengths.push_back(few(2));
    at.push_back(pick(-40, 200));
    repeat(to, *member, lengths.back());
    to.wild = to.wild || member->wild;
    to.made += "{" + member->made + " " + std::to_string(lengths.back()) + "@" +
               std::to_string(at.back()) + "}";
  }
  const int n = static_cast<int>(types.size());
#if MPI_VERSION >= 4
  if (large()) {
    MPI_Type_create_struct_c(n, as<MPI_Count>(lengths).data(), as<MPI_Count>(at).data(),
                             types.data(), &to.type);
  } else
#endif
    MPI_Type_create_struct(n, lengths.data(), at.data(), types.data(), &to.type);
  to.made = "struct " + to.made;
}

void RandomTypes::subarray(RandomType& to, const RandomType& of) {
  const int n = pick(1, 4), order = pick(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  std::vector<int> sizes, subsizes, starts;
  int64_t elements = 1;
  to.made = order == MPI_ORDER_C ? "subarray C" : "subarray F";
  for (int i = 0; i < n; ++i) {
    sizes.push_back(pick(1, 6));
    subsizes.push_back(pick(1, sizes.back()));
    starts.push_back(pick(0, sizes.back() - subsizes.back()));
    elements *= subsizes.back();
    to.made += " " + std::to_string(subsizes.back()) + "/" + std::to_string(sizes.back()) + "@" +
               std::to_string(starts.back());
  }
#if MPI_VERSION >= 4
  if (large()) {
    MPI_Type_create_subarray_c(n, as<MPI_Count>(sizes).data(), as<MPI_Count>(subsizes).data(),
                               as<MPI_Count>(starts).data(), order, of.type, &to.type);
  } else
#endif
    MPI_Type_create_subarray(n, sizes.data(), subsizes.data(), starts.data(), order, of.type,
                             &to.type);
  repeat(to, of, elements);
}

void RandomTypes::darray(RandomType& to, const RandomType& of) {
  const int n = pick(1, 3), order = pick(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  std::vector<int> sizes, distributions, arguments, grid;
  int processes = 1;
  to.made = order == MPI_ORDER_C ? "darray C" : "darray F";
  for (int i = 0; i < n; ++i) {
    sizes.push_back(pick(1, 9));
    const int kind = pick(0, 2);
    const int p = kind == 0 ? 1 : pick(1, 3);
    const int whole = (sizes.back() + p - 1) / p;
    const bool standard = pick(0, 1) == 0;
    grid.push_back(p);
    processes *= p;
    distributions.push_back(kind == 0   ? MPI_DISTRIBUTE_NONE
                            : kind == 1 ? MPI_DISTRIBUTE_BLOCK
                                        : MPI_DISTRIBUTE_CYCLIC);
    arguments.push_back(kind == 0 || standard ? MPI_DISTRIBUTE_DFLT_DARG
                        : kind == 1           ? whole + pick(0, 1)
                                              : pick(1, 4));
    to.made += " " + std::to_string(sizes.back()) + ":" + "nbc"[kind] + "(" +
               std::to_string(arguments.back()) + ")/" + std::to_string(p);
  }
  const int rank = pick(0, processes - 1);
  to.made += " rank " + std::to_string(rank);
#if MPI_VERSION >= 4
  if (large()) {
    MPI_Type_create_darray_c(processes, rank, n, as<MPI_Count>(sizes).data(), distributions.data(),
                             arguments.data(), grid.data(), order, of.type, &to.type);
  } else
#endif
    MPI_Type_create_darray(processes, rank, n, sizes.data(), distributions.data(), arguments.data(),
                           grid.data(), order, of.type, &to.type);
  MPI_Count size = 0, one = 0;
  MPI_Type_size_x(to.type, &size);
  MPI_Type_size_x(of.type, &one);
  if (one > 0) repeat(to, of, size / one);
}

void RandomTypes::resized(RandomType& to, const RandomType& of) {
  const int lb = pick(-20, 20), extent = pick(-20, 120);
#if MPI_VERSION >= 4
  if (large()) {
    MPI_Type_create_resized_c(of.type, lb, extent, &to.type);
  } else
#endif
    MPI_Type_create_resized(of.type, lb, extent, &to.type);
  repeat(to, of, 1);
  to.made = "resized " + std::to_string(lb) + "+" + std::to_string(extent);
}

}  // namespace forebay::mpiio
