#include "mpiio/contents.h"

#include <fmt/format.h>

#include <utility>

namespace forebay::mpiio {
namespace {

struct Envelope {
  MPI_Count integers = 0, addresses = 0, counts = 0, types = 0;
  int combiner = MPI_COMBINER_NAMED;
};

#if defined(OPEN_MPI) && !OMPI_ENABLE_MPI1_COMPAT
// Its header hides the names of what MPI 3 removed, but not the numbers.
constexpr int kHvectorInteger = OMPI_WAS_MPI_COMBINER_HVECTOR_INTEGER;
constexpr int kHindexedInteger = OMPI_WAS_MPI_COMBINER_HINDEXED_INTEGER;
constexpr int kStructInteger = OMPI_WAS_MPI_COMBINER_STRUCT_INTEGER;
#else
constexpr int kHvectorInteger = MPI_COMBINER_HVECTOR_INTEGER;
constexpr int kHindexedInteger = MPI_COMBINER_HINDEXED_INTEGER;
constexpr int kStructInteger = MPI_COMBINER_STRUCT_INTEGER;
#endif

#if MPI_VERSION < 4
int get_envelope(MPI_Datatype type, Envelope& e) {
  int integers = 0, addresses = 0, types = 0;
  const int rc = PMPI_Type_get_envelope(type, &integers, &addresses, &types, &e.combiner);
  e.integers = integers;
  e.addresses = addresses;
  e.types = types;
  return rc;
}

int get_contents(MPI_Datatype type, std::vector<int>& integers, std::vector<MPI_Aint>& addresses,
                 std::vector<MPI_Count>&, std::vector<MPI_Datatype>& types) {
  return PMPI_Type_get_contents(type, static_cast<int>(integers.size()),
                                static_cast<int>(addresses.size()), static_cast<int>(types.size()),
                                integers.data(), addresses.data(), types.data());
}
#else
// The forms without large counts fail for types that were made with them; these take all.
int get_envelope(MPI_Datatype type, Envelope& e) {
  return PMPI_Type_get_envelope_c(type, &e.integers, &e.addresses, &e.counts, &e.types,
                                  &e.combiner);
}

int get_contents(MPI_Datatype type, std::vector<int>& integers, std::vector<MPI_Aint>& addresses,
                 std::vector<MPI_Count>& counts, std::vector<MPI_Datatype>& types) {
  return PMPI_Type_get_contents_c(
      type, static_cast<MPI_Count>(integers.size()), static_cast<MPI_Count>(addresses.size()),
      static_cast<MPI_Count>(counts.size()), static_cast<MPI_Count>(types.size()), integers.data(),
      addresses.data(), counts.data(), types.data());
}
#endif

bool predefined(int combiner) {
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

template <class T>
int64_t taken(const std::vector<T>& from, size_t& next) {
  FOREBAY_ASSERT(next < from.size(), "MPI gave fewer arguments than the constructor takes");
  return from[next++];
}

}  // namespace

Result<void> checked(int mpi_error, const char* what) {
  if (mpi_error == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  PMPI_Error_string(mpi_error, text, &length);
  return Error(EINVAL, fmt::format("{}: {}", what, text));
}

Result<bool> is_predefined(MPI_Datatype type) {
  Envelope envelope;
  if (auto ok = checked(get_envelope(type, envelope), "MPI_Type_get_envelope"); !ok) {
    return std::move(ok).error();
  }
  return predefined(envelope.combiner);
}

Result<Contents> Contents::of(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return Error(EINVAL, "the datatype is MPI_DATATYPE_NULL");
  Contents contents;
  if (auto ok = contents.read(type); !ok) return std::move(ok).error();
  return contents;
}

Result<void> Contents::read(MPI_Datatype type) {
  Envelope e;
  if (auto ok = checked(get_envelope(type, e), "MPI_Type_get_envelope"); !ok) return ok;
  if (auto ok = classify(e.combiner); !ok || combiner_ == Combiner::kNamed) return ok;
  integers_.resize(static_cast<size_t>(e.integers));
  addresses_.resize(static_cast<size_t>(e.addresses));
  counts_.resize(static_cast<size_t>(e.counts));
  std::vector<MPI_Datatype> types(static_cast<size_t>(e.types), MPI_DATATYPE_NULL);
  auto ok =
      checked(get_contents(type, integers_, addresses_, counts_, types), "MPI_Type_get_contents");
  if (ok) types_ = std::move(types);
  return ok;
}

Result<void> Contents::classify(int combiner) {
  if (predefined(combiner)) return {};
  constexpr std::pair<int, Combiner> kKnown[] = {
      {MPI_COMBINER_DUP, Combiner::kDup},
      {MPI_COMBINER_CONTIGUOUS, Combiner::kContiguous},
      {MPI_COMBINER_VECTOR, Combiner::kVector},
      {MPI_COMBINER_HVECTOR, Combiner::kHvector},
      {kHvectorInteger, Combiner::kHvector},
      {MPI_COMBINER_INDEXED, Combiner::kIndexed},
      {MPI_COMBINER_HINDEXED, Combiner::kHindexed},
      {kHindexedInteger, Combiner::kHindexed},
      {MPI_COMBINER_INDEXED_BLOCK, Combiner::kIndexedBlock},
      {MPI_COMBINER_HINDEXED_BLOCK, Combiner::kHindexedBlock},
      {MPI_COMBINER_STRUCT, Combiner::kStruct},
      {kStructInteger, Combiner::kStruct},
      {MPI_COMBINER_SUBARRAY, Combiner::kSubarray},
      {MPI_COMBINER_DARRAY, Combiner::kDarray},
      {MPI_COMBINER_RESIZED, Combiner::kResized},
  };
  for (const auto& [name, known] : kKnown) {
    if (name != combiner) continue;
    combiner_ = known;
    integer_addresses_ =
        combiner == kHvectorInteger || combiner == kHindexedInteger || combiner == kStructInteger;
    return {};
  }
  return Error(EINVAL,
               fmt::format("a datatype of a kind (combiner {}) that we do not know", combiner));
}

Contents::Contents(Contents&& other) noexcept
    : combiner_(other.combiner_),
      integer_addresses_(other.integer_addresses_),
      integers_(std::move(other.integers_)),
      addresses_(std::move(other.addresses_)),
      counts_(std::move(other.counts_)),
      types_(std::exchange(other.types_, {})) {}

Contents::~Contents() {
  for (MPI_Datatype type : types_) {
    const Result<bool> keep = is_predefined(type);
    if (keep && !*keep) PMPI_Type_free(&type);
  }
}

int64_t Contents::integer() {
  return taken(integers_, next_integer_);
}

int64_t Contents::count() {
  return counts_.empty() ? integer() : taken(counts_, next_count_);
}

int64_t Contents::address() {
  if (!counts_.empty()) return taken(counts_, next_count_);
  return integer_addresses_ ? integer() : taken(addresses_, next_address_);
}

std::vector<int64_t> Contents::integers(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  for (int64_t& v : all) v = integer();
  return all;
}

std::vector<int64_t> Contents::counts(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  for (int64_t& v : all) v = count();
  return all;
}

std::vector<int64_t> Contents::addresses(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  for (int64_t& v : all) v = address();
  return all;
}

}  // namespace forebay::mpiio
