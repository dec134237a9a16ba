// A datatype twice: as the calls that make it in MPI, and as its typemap in plain numbers, computed
// here by the standard's definitions (MPI-4.0, chapter 5) and never by asking the MPI.
//
// What holds for every Type: its pieces lie within [lb, ub), so that copies an extent apart do not
// overlap; and no struct is left without an explicit extent, since the padding of a struct is the
// implementation's business.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fuzz {

// Adjacent elements of one predefined type of `unit` bytes.
struct Piece {
  int64_t at;
  int64_t length;
  int64_t unit;
};

struct Type;
using TypePtr = std::shared_ptr<const Type>;

struct Type {
  enum class Make {
    basic,
    contiguous,
    vector,
    hvector,
    indexed,
    hindexed,
    indexed_block,
    hindexed_block,
    structure,
    subarray,
    resized,
    dup
  };
  Make make = Make::basic;
  MPI_Datatype basic = MPI_DATATYPE_NULL;
  std::vector<TypePtr> parts;
  std::vector<int> lengths;     // block lengths; of a subarray the sizes
  std::vector<int64_t> places;  // displacements, in elements or bytes as the constructor wants
  std::vector<int> subsizes, starts;
  bool fortran = false;
  int count = 0;
  int64_t stride = 0;
  std::string text;

  std::vector<Piece> pieces;  // in typemap order
  int64_t size = 0, lb = 0, ub = 0;

  int64_t extent() const { return ub - lb; }
  // One piece that copies of the type continue without a gap.
  bool dense() const { return pieces.size() == 1 && pieces[0].length == extent(); }
  // How many predefined elements the first `bytes` of `copies` of the type hold; -1 if one is cut.
  int64_t elements(int64_t bytes) const;
};

TypePtr basic_type(MPI_Datatype type, const char* name, int unit);
TypePtr contiguous(int count, const TypePtr& t);
TypePtr vector_of(int count, int length, int64_t stride, bool in_bytes, const TypePtr& t);
// Places in extents of t or in bytes.
TypePtr indexed(std::vector<int> lengths, std::vector<int64_t> places, bool in_bytes,
                const TypePtr& t);
TypePtr indexed_block(int length, std::vector<int64_t> places, bool in_bytes, const TypePtr& t);
// Always inside a resized(): see above.
TypePtr structure(std::vector<int> lengths, std::vector<int64_t> places,
                  std::vector<TypePtr> parts);
TypePtr subarray(std::vector<int> sizes, std::vector<int> subsizes, std::vector<int> starts,
                 bool fortran, const TypePtr& t);
TypePtr resized(int64_t lb, int64_t extent, const TypePtr& t);
TypePtr dup(const TypePtr& t);

// The MPI's own object, committed, for as long as this lives.
class Built {
 public:
  explicit Built(const TypePtr& t);
  Built(const Built&) = delete;
  Built& operator=(const Built&) = delete;
  ~Built();
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_;
  bool derived_;
};

}  // namespace fuzz
