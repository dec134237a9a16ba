// View: what a file looks like to one rank (MPI-4.0, 14.3): from a displacement on, the bytes that
// the file type names, tiled. Positions count elementary types (etypes).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "mpiio/decode.h"
#include "mpiio/fault.h"
#include "mpiio/representation.h"
#include "plan/tiled_map.h"

namespace forebay::mpiio {

// A datatype that outlives the program's own handle: a duplicate, unless it is predefined.
class OwnType {
 public:
  OwnType() = default;  // MPI_BYTE
  explicit OwnType(MPI_Datatype type);
  ~OwnType() { free(); }
  OwnType(OwnType&& other) noexcept
      : type_(std::exchange(other.type_, MPI_BYTE)), owned_(std::exchange(other.owned_, false)) {}
  OwnType& operator=(OwnType&& other) noexcept {
    if (this != &other) {
      free();
      type_ = std::exchange(other.type_, MPI_BYTE);
      owned_ = std::exchange(other.owned_, false);
    }
    return *this;
  }
  MPI_Datatype get() const { return type_; }
  MPI_Datatype duplicate() const;  // for the program, which frees it if it is not predefined

 private:
  void free();

  MPI_Datatype type_ = MPI_BYTE;
  bool owned_ = false;
};

struct View {
  MPI_Offset displacement = 0;
  OwnType etype, filetype;
  RepresentationRef representation;
  uint64_t etype_size = 1;  // in the file
  plan::TiledMap map;
  // If it is but the rest of the file, with nothing converted: from here on.
  std::optional<uint64_t> whole_from;

  // Where a position, in etypes, lies in the stream; nothing if no file is that large.
  std::optional<Length> stream(MPI_Offset position) const;
  // The first position from which on nothing lies in a file of this size.
  MPI_Offset end(uint64_t file_size) const;

  struct Wanted {
    MPI_Offset displacement;
    MPI_Datatype etype, filetype;
    RepresentationRef representation;
    bool for_writing;
    MPI_Comm comm;  // of the file
  };
  static Fault make(Decoder& decoder, const Wanted& wanted, View& view);
};

// The type as it lies in a file of that representation.
Result<plan::TypeMap> map_in_file(Decoder& decoder, MPI_Datatype type,
                                  const Representation& representation);

}  // namespace forebay::mpiio
