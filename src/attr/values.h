// Values: the named 64-bit values of one file that many clients share. The shared file pointer of
// an MPI file is one of them.
//
// From the poster on shared file pointers and atomic append in IOFSL ("paper 4"), section "Extended
// Attributes in IOFSL": CREATE, REMOVE, GET, SET and an atomic FETCH_AND_ADD, held by a server and
// never stored in the file system. We add compare-and-swap.
//
// A value: no threads, no clock, no network. Whoever serves it applies one operation at a time, and
// that is what makes each of them atomic. Numbers count modulo 2^64, so that a negative step is its
// two's complement.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/result.h"

namespace forebay::attr {

class Values {
 public:
  static constexpr size_t kMaxName = 255;  // bytes of a name, at least 1
  static constexpr size_t kMaxCount = 1024;

  explicit Values(size_t most = kMaxCount) : most_(most) {}

  // EEXIST if there is one, ENOSPC if there are as many as there may be, EINVAL or ENAMETOOLONG for
  // a name that is none.
  Result<void> create(std::string_view name, uint64_t value);
  // These are ENODATA if there is none of that name.
  Result<void> remove(std::string_view name);
  Result<uint64_t> get(std::string_view name) const;
  Result<void> set(std::string_view name, uint64_t value);
  // Both return the value before.
  Result<uint64_t> fetch_and_add(std::string_view name, uint64_t step);
  Result<uint64_t> compare_and_swap(std::string_view name, uint64_t expected, uint64_t desired);

  size_t size() const { return values_.size(); }
  // fn(name, value) of each, by name.
  template <class Fn>
  void each(Fn&& fn) const {
    for (const auto& [name, value] : values_) fn(std::string_view(name), value);
  }

 private:
  uint64_t* find(std::string_view name);

  size_t most_;
  std::map<std::string, uint64_t, std::less<>> values_;
};

}  // namespace forebay::attr
