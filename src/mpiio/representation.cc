#include "mpiio/representation.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

namespace forebay::mpiio {
namespace {

class External32 final : public Representation {
 public:
  External32() : Representation("external32") {}
  bool converts() const override { return true; }

  Result<int64_t> size_of(MPI_Datatype primitive) const override {
    MPI_Aint size = 0;
    if (PMPI_Pack_external_size("external32", 1, primitive, &size) != MPI_SUCCESS)
      return Error(EINVAL, "external32 has no such type");
    return size;
  }

  Fault encode(const Buffer& buffer, std::vector<std::byte>& bytes) const override {
    MPI_Aint position = 0;
    const auto size = static_cast<MPI_Aint>(bytes.size());
    return in_parts(buffer, [&](void* from, int count) {
      return PMPI_Pack_external("external32", from, count, buffer.type, bytes.data(), size,
                                &position);
    });
  }

  Fault decode(const std::vector<std::byte>& bytes, const Buffer& buffer) const override {
    MPI_Aint position = 0;
    const auto size = static_cast<MPI_Aint>(bytes.size());
    return in_parts(buffer, [&](void* to, int count) {
      return PMPI_Unpack_external("external32", bytes.data(), size, &position, to, count,
                                  buffer.type);
    });
  }

 private:
  // MPI's functions count in int.
  template <class Fn>
  static Fault in_parts(const Buffer& buffer, Fn&& fn) {
    MPI_Aint lb = 0, extent = 0;
    PMPI_Type_get_extent(buffer.type, &lb, &extent);
    for (MPI_Count at = 0; at < buffer.count;) {
      const int count = static_cast<int>(std::min<MPI_Count>(buffer.count - at, INT_MAX));
      void* const place = static_cast<std::byte*>(buffer.address) + at * extent;
      if (fn(place, count) != MPI_SUCCESS)
        return {MPI_ERR_CONVERSION, "external32: MPI cannot convert this type"};
      at += count;
    }
    return {};
  }
};

class Users final : public Representation {
 public:
  Users(std::string its_name, const Registered& functions)
      : Representation(std::move(its_name)), functions_(functions) {}
  bool converts() const override { return true; }

  Result<int64_t> size_of(MPI_Datatype primitive) const override {
    MPI_Aint extent = 0;
    if (functions_.extent(primitive, &extent, functions_.state) != MPI_SUCCESS || extent < 0)
      return Error(EINVAL, fmt::format("{}: its extent function failed", name));
    return extent;
  }

  Fault encode(const Buffer& buffer, std::vector<std::byte>& bytes) const override {
#if MPI_VERSION >= 4
    if (functions_.write_c)
      return judged(functions_.write_c(buffer.address, buffer.type, buffer.count, bytes.data(), 0,
                                       functions_.state));
#endif
    if (!functions_.write) return Representation::encode(buffer, bytes);
    if (buffer.count > INT_MAX) return too_many();
    return judged(functions_.write(buffer.address, buffer.type, static_cast<int>(buffer.count),
                                   bytes.data(), 0, functions_.state));
  }

  Fault decode(const std::vector<std::byte>& bytes, const Buffer& buffer) const override {
    void* const from = const_cast<std::byte*>(bytes.data());
#if MPI_VERSION >= 4
    if (functions_.read_c)
      return judged(
          functions_.read_c(buffer.address, buffer.type, buffer.count, from, 0, functions_.state));
#endif
    if (!functions_.read) return Representation::decode(bytes, buffer);
    if (buffer.count > INT_MAX) return too_many();
    return judged(functions_.read(buffer.address, buffer.type, static_cast<int>(buffer.count), from,
                                  0, functions_.state));
  }

 private:
  Fault judged(int code) const {
    if (code == MPI_SUCCESS) return {};
    return {MPI_ERR_CONVERSION, fmt::format("{}: its conversion function returned {}", name, code)};
  }
  Fault too_many() const {
    return {MPI_ERR_COUNT, fmt::format("{}: its conversion functions count in int", name)};
  }

  const Registered functions_;
};

// Packed or unpacked as it is: what a null conversion function means.
template <class Fn>
Fault plainly(const Buffer& buffer, Fn&& fn) {
  if (buffer.count > INT_MAX)
    return {MPI_ERR_COUNT, "more items than a conversion of this kind counts"};
  if (fn(static_cast<int>(buffer.count)) == MPI_SUCCESS) return {};
  return {MPI_ERR_CONVERSION, "MPI cannot pack this type"};
}

}  // namespace

Result<int64_t> Representation::size_of(MPI_Datatype primitive) const {
  int size = 0;
  if (PMPI_Type_size(primitive, &size) != MPI_SUCCESS) return Error(EINVAL, "no such type");
  return size;
}

Fault Representation::encode(const Buffer& buffer, std::vector<std::byte>& bytes) const {
  return plainly(buffer, [&](int count) {
    int position = 0;
    return PMPI_Pack(buffer.address, count, buffer.type, bytes.data(),
                     static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX)), &position,
                     MPI_COMM_SELF);
  });
}

Fault Representation::decode(const std::vector<std::byte>& bytes, const Buffer& buffer) const {
  return plainly(buffer, [&](int count) {
    int position = 0;
    return PMPI_Unpack(bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX)),
                       &position, buffer.address, count, buffer.type, MPI_COMM_SELF);
  });
}

Representations::Representations() {
  for (const char* name : {"native", "internal"})
    known_[name] = std::make_shared<Representation>(name);
  known_["external32"] = std::make_shared<External32>();
}

Fault Representations::add(RepresentationRef one) {
  if (one->name.size() >= MPI_MAX_DATAREP_STRING)
    return {MPI_ERR_ARG, "the name of a data representation is too long"};
  std::lock_guard lock(mutex_);
  if (known_.emplace(one->name, one).second) return {};
  return {MPI_ERR_DUP_DATAREP, fmt::format("there is a data representation {} already", one->name)};
}

RepresentationRef Representations::find(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto it = known_.find(name);
  return it == known_.end() ? nullptr : it->second;
}

RepresentationRef registered(std::string name, const Registered& functions) {
  return std::make_shared<Users>(std::move(name), functions);
}

}  // namespace forebay::mpiio
