// Representation: how data lies in a file (MPI-4.0, 14.5). "native" and "internal" are as in
// memory; "external32" is MPI's own big-endian form; others are the program's, registered with
// functions that convert.
//
// A representation that converts works on whole buffers: data of the program's type on one side, a
// stream of bytes on the other. Both directions may call MPI and the program, so they run on the
// program's thread. Immutable once registered.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mpiio/fault.h"

namespace forebay::mpiio {

struct Buffer {
  void* address = nullptr;
  MPI_Count count = 0;
  MPI_Datatype type = MPI_BYTE;
};

class Representation {
 public:
  explicit Representation(std::string its_name) : name(std::move(its_name)) {}
  virtual ~Representation() = default;
  Representation(const Representation&) = delete;

  const std::string name;

  virtual bool converts() const { return false; }
  // The bytes that a predefined type takes in the file.
  virtual Result<int64_t> size_of(MPI_Datatype primitive) const;
  // `bytes` holds as many bytes as `buffer` takes in the file; decode() may get fewer, as many as
  // whole items.
  virtual Fault encode(const Buffer& buffer, std::vector<std::byte>& bytes) const;
  virtual Fault decode(const std::vector<std::byte>& bytes, const Buffer& buffer) const;
};
using RepresentationRef = std::shared_ptr<const Representation>;

class Representations {
 public:
  Representations();

  // MPI_ERR_DUP_DATAREP if there is one of that name; MPI_ERR_ARG for a name that is too long.
  Fault add(std::shared_ptr<const Representation> one);
  RepresentationRef find(const std::string& name);  // null: none

 private:
  std::mutex mutex_;
  std::map<std::string, RepresentationRef> known_;
};

// The program's own. Null conversion functions mean that data lies as in memory.
struct Registered {
  MPI_Datarep_conversion_function* read = nullptr;
  MPI_Datarep_conversion_function* write = nullptr;
#if MPI_VERSION >= 4
  MPI_Datarep_conversion_function_c* read_c = nullptr;
  MPI_Datarep_conversion_function_c* write_c = nullptr;
#endif
  MPI_Datarep_extent_function* extent = nullptr;
  void* state = nullptr;
};
RepresentationRef registered(std::string name, const Registered& functions);

}  // namespace forebay::mpiio
