#include "type.h"

#include <algorithm>

namespace fuzz {
namespace {

using Make = Type::Make;

template <class T>
std::string list(const std::vector<T>& v) {
  std::string s = "{";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? "," : "") + std::to_string(v[i]);
  return s + "}";
}

void add_piece(Type& out, Piece p) {
  if (!out.pieces.empty()) {
    Piece& last = out.pieces.back();
    if (last.unit == p.unit && last.at + last.length == p.at) {
      last.length += p.length;
      return;
    }
  }
  out.pieces.push_back(p);
}

// n copies of t, an extent apart, the first at `at`; bounds grow with them.
void add(Type& out, const Type& t, int64_t at, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t base = at + i * t.extent();
    bool first = out.size == 0;
    out.lb = first ? base + t.lb : std::min(out.lb, base + t.lb);
    out.ub = first ? base + t.ub : std::max(out.ub, base + t.ub);
    for (const Piece& p : t.pieces) add_piece(out, {base + p.at, p.length, p.unit});
    out.size += t.size;
  }
}

std::shared_ptr<Type> begin(Make make, const TypePtr& t) {
  auto out = std::make_shared<Type>();
  out->make = make;
  if (t) out->parts = {t};
  return out;
}

void add_subarray(Type& out, const Type& t) {
  size_t dims = out.lengths.size();
  // Dimension order from the slowest to the fastest.
  std::vector<size_t> order(dims);
  for (size_t d = 0; d < dims; ++d) order[d] = out.fortran ? dims - 1 - d : d;
  std::vector<int> index(dims, 0);
  int64_t total = 1;
  for (int n : out.subsizes) total *= n;
  for (int64_t i = 0; i < total; ++i) {
    int64_t place = 0;
    for (size_t d : order) place = place * out.lengths[d] + out.starts[d] + index[d];
    add(out, t, place * t.extent(), 1);
    for (size_t k = dims; k-- > 0;) {
      if (++index[order[k]] < out.subsizes[order[k]]) break;
      index[order[k]] = 0;
    }
  }
  int64_t whole = 1;
  for (int n : out.lengths) whole *= n;
  out.lb = 0;
  out.ub = whole * t.extent();
}

}  // namespace

int64_t Type::elements(int64_t bytes) const {
  int64_t in_one = 0;
  for (const Piece& p : pieces) in_one += p.length / p.unit;
  int64_t n = bytes / size * in_one;
  bytes %= size;
  for (const Piece& p : pieces) {
    int64_t part = std::min(bytes, p.length);
    if (part % p.unit) return -1;
    n += part / p.unit;
    bytes -= part;
  }
  return n;
}

TypePtr basic_type(MPI_Datatype type, const char* name, int unit) {
  auto out = begin(Make::basic, nullptr);
  out->basic = type;
  out->text = name;
  out->pieces = {{0, unit, unit}};
  out->size = out->ub = unit;
  return out;
}

TypePtr contiguous(int count, const TypePtr& t) {
  auto out = begin(Make::contiguous, t);
  out->count = count;
  out->text = "contiguous(" + std::to_string(count) + ", " + t->text + ")";
  add(*out, *t, 0, count);
  return out;
}

TypePtr vector_of(int count, int length, int64_t stride, bool in_bytes, const TypePtr& t) {
  auto out = begin(in_bytes ? Make::hvector : Make::vector, t);
  out->count = count;
  out->lengths = {length};
  out->stride = stride;
  out->text = std::string(in_bytes ? "hvector(" : "vector(") + std::to_string(count) + ", " +
              std::to_string(length) + ", " + std::to_string(stride) + ", " + t->text + ")";
  for (int i = 0; i < count; ++i) add(*out, *t, i * stride * (in_bytes ? 1 : t->extent()), length);
  return out;
}

TypePtr indexed(std::vector<int> lengths, std::vector<int64_t> places, bool in_bytes,
                const TypePtr& t) {
  auto out = begin(in_bytes ? Make::hindexed : Make::indexed, t);
  out->text = (in_bytes ? "hindexed(" : "indexed(") + list(lengths) + ", " + list(places) + ", " +
              t->text + ")";
  for (size_t i = 0; i < places.size(); ++i)
    add(*out, *t, places[i] * (in_bytes ? 1 : t->extent()), lengths[i]);
  out->lengths = std::move(lengths);
  out->places = std::move(places);
  return out;
}

TypePtr indexed_block(int length, std::vector<int64_t> places, bool in_bytes, const TypePtr& t) {
  auto out = begin(in_bytes ? Make::hindexed_block : Make::indexed_block, t);
  out->text = std::string(in_bytes ? "hindexed_block(" : "indexed_block(") +
              std::to_string(length) + ", " + list(places) + ", " + t->text + ")";
  for (int64_t place : places) add(*out, *t, place * (in_bytes ? 1 : t->extent()), length);
  out->count = length;
  out->places = std::move(places);
  return out;
}

TypePtr structure(std::vector<int> lengths, std::vector<int64_t> places,
                  std::vector<TypePtr> parts) {
  auto out = begin(Make::structure, nullptr);
  out->text = "struct(" + list(lengths) + ", " + list(places);
  for (size_t i = 0; i < parts.size(); ++i) {
    out->text += ", " + parts[i]->text;
    add(*out, *parts[i], places[i], lengths[i]);
  }
  out->text += ")";
  out->lengths = std::move(lengths);
  out->places = std::move(places);
  out->parts = std::move(parts);
  return out;
}

TypePtr subarray(std::vector<int> sizes, std::vector<int> subsizes, std::vector<int> starts,
                 bool fortran, const TypePtr& t) {
  auto out = begin(Make::subarray, t);
  out->text = "subarray(" + list(sizes) + ", " + list(subsizes) + ", " + list(starts) +
              (fortran ? ", F, " : ", C, ") + t->text + ")";
  out->lengths = std::move(sizes);
  out->subsizes = std::move(subsizes);
  out->starts = std::move(starts);
  out->fortran = fortran;
  add_subarray(*out, *t);
  return out;
}

TypePtr resized(int64_t lb, int64_t extent, const TypePtr& t) {
  auto out = begin(Make::resized, t);
  out->text =
      "resized(" + std::to_string(lb) + ", " + std::to_string(extent) + ", " + t->text + ")";
  add(*out, *t, 0, 1);
  out->lb = lb;
  out->ub = lb + extent;
  return out;
}

TypePtr dup(const TypePtr& t) {
  auto out = begin(Make::dup, t);
  out->text = "dup(" + t->text + ")";
  add(*out, *t, 0, 1);
  return out;
}

namespace {

MPI_Datatype build(const Type& t);

MPI_Datatype build_struct(const Type& t) {
  std::vector<MPI_Datatype> parts;
  for (const TypePtr& part : t.parts) parts.push_back(build(*part));
  std::vector<MPI_Aint> places(t.places.begin(), t.places.end());
  MPI_Datatype out;
  MPI_Type_create_struct(static_cast<int>(parts.size()), t.lengths.data(), places.data(),
                         parts.data(), &out);
  for (size_t i = 0; i < parts.size(); ++i)
    if (t.parts[i]->make != Make::basic) MPI_Type_free(&parts[i]);
  return out;
}

MPI_Datatype build_on(const Type& t, MPI_Datatype part) {
  std::vector<MPI_Aint> bytes(t.places.begin(), t.places.end());
  std::vector<int> units(t.places.begin(), t.places.end());
  int blocks = static_cast<int>(t.places.size());
  MPI_Datatype out = MPI_DATATYPE_NULL;
  switch (t.make) {
    case Make::contiguous:
      MPI_Type_contiguous(t.count, part, &out);
      break;
    case Make::vector:
      MPI_Type_vector(t.count, t.lengths[0], static_cast<int>(t.stride), part, &out);
      break;
    case Make::hvector:
      MPI_Type_create_hvector(t.count, t.lengths[0], t.stride, part, &out);
      break;
    case Make::indexed:
      MPI_Type_indexed(blocks, t.lengths.data(), units.data(), part, &out);
      break;
    case Make::hindexed:
      MPI_Type_create_hindexed(blocks, t.lengths.data(), bytes.data(), part, &out);
      break;
    case Make::indexed_block:
      MPI_Type_create_indexed_block(blocks, t.count, units.data(), part, &out);
      break;
    case Make::hindexed_block:
      MPI_Type_create_hindexed_block(blocks, t.count, bytes.data(), part, &out);
      break;
    case Make::subarray:
      MPI_Type_create_subarray(static_cast<int>(t.lengths.size()), t.lengths.data(),
                               t.subsizes.data(), t.starts.data(),
                               t.fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, part, &out);
      break;
    case Make::resized:
      MPI_Type_create_resized(part, t.lb, t.extent(), &out);
      break;
    case Make::dup:
      MPI_Type_dup(part, &out);
      break;
    case Make::basic:
    case Make::structure:
      break;
  }
  return out;
}

MPI_Datatype build(const Type& t) {
  if (t.make == Make::basic) return t.basic;
  if (t.make == Make::structure) return build_struct(t);
  MPI_Datatype part = build(*t.parts[0]);
  MPI_Datatype out = build_on(t, part);
  if (t.parts[0]->make != Make::basic) MPI_Type_free(&part);
  return out;
}

}  // namespace

Built::Built(const TypePtr& t) : type_(build(*t)), derived_(t->make != Make::basic) {
  if (derived_) MPI_Type_commit(&type_);
}

Built::~Built() {
  if (derived_) MPI_Type_free(&type_);
}

}  // namespace fuzz
