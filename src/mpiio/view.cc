#include "mpiio/view.h"

#include "mpiio/contents.h"

namespace forebay::mpiio {
namespace {

Fault bad_type(const char* which, const std::string& why) {
  return {MPI_ERR_TYPE, std::string(which) + ": " + why};
}

// What is no view of a file at all, whatever its types are elsewhere. MPI names no class for it;
// programs know ROMIO's.
Fault no_view(const char* why) {
  return {MPI_ERR_IO, std::string("filetype: ") + why};
}

// What MPI asks of a file type (14.1.1 and 14.3).
Fault check(const plan::TypeMap& etype, const plan::TypeMap& filetype, bool for_writing) {
  if (etype.size() <= 0) return bad_type("etype", "it has no bytes");
  if (filetype.size() % etype.size() != 0)
    return bad_type("filetype", "its size is no multiple of the etype's");
  if (filetype.size() > 0 && filetype.true_lb() < 0)
    return no_view("it has negative displacements");
  if (!filetype.ordered()) return no_view("its displacements decrease");
  if (for_writing && !filetype.monotone())
    return no_view("it overlaps itself, and the file is open for writing");
  return {};
}

}  // namespace

OwnType::OwnType(MPI_Datatype type) : type_(type) {
  if (auto known = is_predefined(type); known && *known) return;
  PMPI_Type_dup(type, &type_);
  owned_ = true;
}

void OwnType::free() {
  if (owned_) PMPI_Type_free(&type_);
  owned_ = false;
}

MPI_Datatype OwnType::duplicate() const {
  MPI_Datatype copy = type_;
  if (owned_) PMPI_Type_dup(type_, &copy);
  return copy;
}

std::optional<Length> View::stream(MPI_Offset position) const {
  uint64_t at = 0;
  if (position < 0 || __builtin_mul_overflow(static_cast<uint64_t>(position), etype_size, &at) ||
      at > map.total().value)
    return std::nullopt;
  return Length(at);
}

MPI_Offset View::end(uint64_t file_size) const {
  const uint64_t bytes = map.position_beyond(Offset(file_size)).value;
  return static_cast<MPI_Offset>((bytes + etype_size - 1) / etype_size);
}

Result<plan::TypeMap> map_in_file(Decoder& decoder, MPI_Datatype type,
                                  const Representation& representation) {
  if (!representation.converts()) return decoder.decode(type);
  return decoder.decode_in_file(
      type, [&](MPI_Datatype primitive) { return representation.size_of(primitive); });
}

Fault View::make(Decoder& decoder, const Wanted& wanted, View& view) {
  for (MPI_Datatype type : {wanted.etype, wanted.filetype})
    if (auto ok = decoder.check_committed(type, wanted.comm); !ok)
      return bad_type("view", ok.error().message());
  auto etype = map_in_file(decoder, wanted.etype, *wanted.representation);
  if (!etype) return bad_type("etype", etype.error().message());
  auto filetype = map_in_file(decoder, wanted.filetype, *wanted.representation);
  if (!filetype) return bad_type("filetype", filetype.error().message());
  if (auto fault = check(*etype, *filetype, wanted.for_writing)) return fault;
  auto map = plan::TiledMap::view(Offset(static_cast<uint64_t>(wanted.displacement)), *filetype);
  if (!map) return bad_type("filetype", map.error().message());
  view.displacement = wanted.displacement;
  view.etype = OwnType(wanted.etype);
  view.filetype = OwnType(wanted.filetype);
  view.representation = wanted.representation;
  view.etype_size = static_cast<uint64_t>(etype->size());
  view.map = std::move(*map);
  const bool whole = view.map.contiguous() && !wanted.representation->converts();
  if (whole && view.map.total()) view.whole_from = view.map.offset_of(Length()).value;
  return {};
}

}  // namespace forebay::mpiio
