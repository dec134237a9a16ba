#include "mpiio/decode.h"

#include <vector>

#include "mpiio/arrays.h"
#include "mpiio/contents.h"
#include "mpiio/named.h"

namespace forebay::mpiio {
namespace {

using plan::TypeMap;

// Displacements in elements, as bytes.
Result<std::vector<int64_t>> scaled(std::vector<int64_t> in_elements, const TypeMap& of) {
  for (int64_t& v : in_elements) {
    if (__builtin_mul_overflow(v, of.extent(), &v)) {
      return Error(EOVERFLOW, "a datatype with displacements beyond 63 bits");
    }
  }
  return in_elements;
}

Result<TypeMap> vector_map(Contents& contents, bool bytes, const TypeMap& of) {
  const int64_t count = contents.count(), block = contents.count();
  if (bytes) return TypeMap::vector(count, block, contents.address(), of);
  const auto stride = scaled({contents.count()}, of);
  if (!stride) return stride.error();
  return TypeMap::vector(count, block, stride->front(), of);
}

Result<TypeMap> indexed_map(Contents& contents, bool bytes, const TypeMap& of) {
  const int64_t n = contents.count();
  const std::vector<int64_t> lengths = contents.counts(n);
  const auto at = bytes ? contents.addresses(n) : scaled(contents.counts(n), of);
  if (!at) return at.error();
  std::vector<TypeMap::Block> blocks(lengths.size());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = {(*at)[i], lengths[i]};
  return TypeMap::indexed(blocks, of);
}

Result<TypeMap> indexed_block_map(Contents& contents, bool bytes, const TypeMap& of) {
  const int64_t n = contents.count(), block = contents.count();
  const auto at = bytes ? contents.addresses(n) : scaled(contents.counts(n), of);
  if (!at) return at.error();
  return TypeMap::indexed_block(block, *at, of);
}

Result<TypeMap> resized_map(Contents& contents, const TypeMap& of) {
  const int64_t lb = contents.address();
  return TypeMap::resized(of, lb, contents.address());
}

struct StructArguments {
  std::vector<int64_t> counts, at;
};

StructArguments struct_arguments(Contents& contents) {
  const int64_t n = contents.count();
  StructArguments arguments{contents.counts(n), {}};
  arguments.at = contents.addresses(n);
  return arguments;
}

Result<TypeMap> struct_map(Contents& contents, const std::vector<TypeMap>& of) {
  const StructArguments arguments = struct_arguments(contents);
  std::vector<TypeMap::Member> members;
  for (size_t i = 0; i < of.size(); ++i) {
    members.push_back({arguments.at[i], arguments.counts[i], of[i]});
  }
  return TypeMap::structure(members);
}

// A derived type's bytes, of those of the types it was made of.
Result<TypeMap> combined(Contents& contents, const std::vector<TypeMap>& of) {
  switch (contents.combiner()) {
    case Combiner::kNamed:
      break;
    case Combiner::kDup:
      return of[0];
    case Combiner::kContiguous:
      return TypeMap::contiguous(contents.count(), of[0]);
    case Combiner::kVector:
      return vector_map(contents, false, of[0]);
    case Combiner::kHvector:
      return vector_map(contents, true, of[0]);
    case Combiner::kIndexed:
      return indexed_map(contents, false, of[0]);
    case Combiner::kHindexed:
      return indexed_map(contents, true, of[0]);
    case Combiner::kIndexedBlock:
      return indexed_block_map(contents, false, of[0]);
    case Combiner::kHindexedBlock:
      return indexed_block_map(contents, true, of[0]);
    case Combiner::kStruct:
      return struct_map(contents, of);
    case Combiner::kSubarray:
      return subarray_map(contents, of[0]);
    case Combiner::kDarray:
      return darray_map(contents, of[0]);
    case Combiner::kResized:
      return resized_map(contents, of[0]);
  }
  return Error(EINVAL, "a predefined datatype is made of no other");
}

// `decode` gives the bytes of a nested type.
template <class Fn>
Result<TypeMap> combined_of(Contents& contents, Fn&& decode) {
  std::vector<TypeMap> of;
  for (const MPI_Datatype inner : contents.types()) {
    Result<TypeMap> map = decode(inner);
    if (!map) return map;
    of.push_back(std::move(*map));
  }
  return combined(contents, of);
}

Result<Signature> named_signature(MPI_Datatype type) {
  if (const auto pair = pair_type(type)) {
    return Signature::joined({Signature::of(pair->value), Signature::of(pair->index)});
  }
  const Result<int64_t> size = size_of(type);
  if (!size) return size.error();
  return *size > 0 ? Signature::of(type) : Signature();  // markers of bounds have no bytes
}

Result<TypeMap> named_in_file(MPI_Datatype type, const PrimitiveSize& size) {
  if (const auto pair = pair_type(type)) {
    const Result<int64_t> value = size(pair->value), index = size(pair->index);
    if (!value || !index) return (value ? index : value).error();
    return TypeMap::bytes(*value + *index);
  }
  const Result<int64_t> native = size_of(type);
  if (!native || *native == 0) return named_map(type);
  const Result<int64_t> n = size(type);
  if (!n) return n.error();
  return TypeMap::bytes(*n);
}

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::make() {
  std::unique_ptr<Decoder> decoder(new Decoder);
  auto ok = checked(
      PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, &Decoder::drop, &decoder->keyval_, nullptr),
      "MPI_Type_create_keyval");
  if (!ok) return std::move(ok).error();
  return decoder;
}

Decoder::~Decoder() {
  int finalized = 0;
  PMPI_Finalized(&finalized);
  if (finalized) return;
  // What is kept with types stays there until they go.
  if (keyval_ != MPI_KEYVAL_INVALID) PMPI_Type_free_keyval(&keyval_);
}

int Decoder::drop(MPI_Datatype, int, void* kept, void*) {
  delete static_cast<Kept*>(kept);
  return MPI_SUCCESS;
}

// With the mutex held.
Decoder::Kept* Decoder::find(MPI_Datatype type) {
  if (const auto named = predefined_.find(type); named != predefined_.end()) {
    return &named->second;
  }
  void* kept = nullptr;
  int there = 0;
  const int rc = PMPI_Type_get_attr(type, keyval_, &kept, &there);
  return rc == MPI_SUCCESS && there ? static_cast<Kept*>(kept) : nullptr;
}

Decoder::Kept Decoder::known(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return {};
  const std::lock_guard lock(mutex_);
  const Kept* kept = find(type);
  return kept ? *kept : Kept();
}

// fn(Kept&) on what is kept of the type, which another thread may have begun meanwhile.
template <class Fn>
Result<void> Decoder::keep(MPI_Datatype type, Fn&& fn) {
  const Result<bool> predefined = is_predefined(type);
  if (!predefined) return predefined.error();
  const std::lock_guard lock(mutex_);
  Kept* kept = find(type);
  if (!kept && *predefined) kept = &predefined_[type];
  if (!kept) {
    auto fresh = std::make_unique<Kept>();
    auto ok = checked(PMPI_Type_set_attr(type, keyval_, fresh.get()), "MPI_Type_set_attr");
    if (!ok) return ok;
    kept = fresh.release();
  }
  fn(*kept);
  return {};
}

Result<TypeMap> Decoder::decode(MPI_Datatype type) {
  if (const Kept kept = known(type); kept.map) return *kept.map;
  Result<Contents> contents = Contents::of(type);
  if (!contents) return std::move(contents).error();
  Result<TypeMap> map = TypeMap();
  if (contents->combiner() == Combiner::kNamed) {
    map = named_map(type);
  } else {
    map = combined_of(*contents, [this](MPI_Datatype inner) { return decode(inner); });
    // MPI may pad a struct's extent, and knows of markers of bounds.
    if (map) map = bounded(type, *map);
  }
  if (!map) return map;
  if (auto ok = keep(type, [&](Kept& kept) { kept.map = *map; }); !ok) {
    return std::move(ok).error();
  }
  return map;
}

Result<Signature> Decoder::signature(MPI_Datatype type) {
  if (const Kept kept = known(type); kept.signature) return *kept.signature;
  Result<Contents> contents = Contents::of(type);
  if (!contents) return std::move(contents).error();
  Result<Signature> made = contents->combiner() == Combiner::kNamed
                               ? named_signature(type)
                               : combined_signature(type, *contents);
  if (!made) return made;
  if (auto ok = keep(type, [&](Kept& kept) { kept.signature = *made; }); !ok) {
    return std::move(ok).error();
  }
  return made;
}

Result<Signature> Decoder::combined_signature(MPI_Datatype type, Contents& contents) {
  std::vector<Signature> of;
  for (const MPI_Datatype inner : contents.types()) {
    Result<Signature> one = signature(inner);
    if (!one) return one;
    of.push_back(std::move(*one));
  }
  if (contents.combiner() == Combiner::kStruct) {
    const std::vector<int64_t> counts = struct_arguments(contents).counts;
    for (size_t i = 0; i < of.size(); ++i) {
      Result<Signature> several = Signature::repeated(static_cast<uint64_t>(counts[i]), of[i]);
      if (!several) return several;
      of[i] = std::move(*several);
    }
    return Signature::joined(of);
  }
  // All others hold whole copies of one type.
  const Result<TypeMap> whole = decode(type), one = decode(contents.types()[0]);
  if (!whole || !one) return (whole ? one : whole).error();
  if (one->size() == 0) return Signature();
  return Signature::repeated(static_cast<uint64_t>(whole->size() / one->size()), of[0]);
}

std::optional<uint64_t> Decoder::dense(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Kept* kept = find(type);
  if (!kept || !kept->committed || !kept->map) return std::nullopt;
  const TypeMap& map = *kept->map;
  const bool side_by_side = map.contiguous() && map.extent() == map.size() && map.true_lb() == 0;
  return side_by_side ? std::optional(static_cast<uint64_t>(map.size())) : std::nullopt;
}

// MPI has no question for it: but it packs nothing, not even no element, of a type that is not.
Result<void> Decoder::check_committed(MPI_Datatype type, MPI_Comm comm) {
  if (type == MPI_DATATYPE_NULL) return Error(EINVAL, "the datatype is MPI_DATATYPE_NULL");
  if (known(type).committed) return {};
  char none[1] = {};
  int position = 0;
  const int rc = PMPI_Pack(none, 0, type, none, sizeof none, &position, comm);
  if (auto ok = checked(rc, "the datatype is not committed"); !ok) return ok;
  return keep(type, [](Kept& kept) { kept.committed = true; });
}

Result<TypeMap> Decoder::decode_in_file(MPI_Datatype type, const PrimitiveSize& size) {
  Result<Contents> contents = Contents::of(type);
  if (!contents) return std::move(contents).error();
  if (contents->combiner() == Combiner::kNamed) return named_in_file(type, size);
  return combined_of(*contents, [&](MPI_Datatype inner) { return decode_in_file(inner, size); });
}

}  // namespace forebay::mpiio
