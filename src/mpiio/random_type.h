// Random MPI datatypes of every constructor, nested, with the list of their primitive elements, for
// tests. Small: some thousand bytes, within some hundred thousand.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace forebay::mpiio {

// Owns the type, unless it is predefined.
class RandomType {
 public:
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::vector<MPI_Datatype> elements;
  std::string made;  // how, for whoever reads a failure
  // Something in it is empty, or has no positive extent, or is repeated every -1 bytes: legal, but
  // MPI_Pack itself goes wrong on some of these (MPICH 4.0: negative extents, and it dies of a
  // struct's empty members; Open MPI 4.1: empty members, and -1 stands for another stride).
  bool wild = false;

  RandomType() = default;
  RandomType(RandomType&& o) noexcept
      : type(std::exchange(o.type, MPI_DATATYPE_NULL)),
        elements(std::move(o.elements)),
        made(std::move(o.made)),
        wild(o.wild),
        owned(std::exchange(o.owned, false)) {}
  RandomType& operator=(RandomType&& o) noexcept {
    std::swap(type, o.type);
    std::swap(elements, o.elements);
    std::swap(made, o.made);
    std::swap(wild, o.wild);
    std::swap(owned, o.owned);
    return *this;
  }
  ~RandomType() {
    if (owned) MPI_Type_free(&type);
  }
  bool owned = false;
};

class RandomTypes {
 public:
  explicit RandomTypes(uint64_t seed) : random_(seed) {}

  RandomType make(int depth);
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  RandomType named();
  RandomType derived(int depth);
  void repeat(RandomType& to, const RandomType& of, int64_t count);
  void vector(RandomType& to, const RandomType& of);
  void indexed(RandomType& to, const RandomType& of);
  void indexed_block(RandomType& to, const RandomType& of);
  void structure(RandomType& to, const RandomType& of, int depth);
  void subarray(RandomType& to, const RandomType& of);
  void darray(RandomType& to, const RandomType& of);
  void resized(RandomType& to, const RandomType& of);
  // None is rare, or nothing would be left of deep types.
  int few(int most) { return pick(0, 19) == 0 ? 0 : pick(1, most); }
  bool large() { return pick(0, 1) == 0; }  // by the large-count constructor, if there is one

  std::mt19937_64 random_;
};

}  // namespace forebay::mpiio
